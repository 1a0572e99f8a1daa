"""Which of Megatron's patches a job gets, and how a module of Megatron is rewritten; nothing here imports Megatron."""

from __future__ import annotations

import ast
import sys
import types
import warnings
from dataclasses import replace

import pytest

from primus_hydra.backends.megatron import cpu_import
from primus_hydra.patches.megatron.optimizer import torch_adam
from primus_hydra.patching import REGISTRY, PatchContext, Selection, decide, load_patches, run_patches
from tests.support import make_job

ON_A_GPU: dict[str, object] = {"platform.name": "mi300x", "platform.vendor": "amd", "platform.gpus_per_node": 8}
FOR_CPUS = {"megatron.cpu", "megatron.cpu-notices", "megatron.moe-split-sizes"}
EVERYWHERE = {"megatron.notices", "megatron.moe-balance-scale", "megatron.distopt-adam-state"}


def context(
    version: str = "0.16.1", backend: str = "megatron", overrides: dict[str, object] | None = None
) -> PatchContext:
    job = make_job(overrides)
    return PatchContext(job=job, backend=backend, backend_version=version, torch_version="2.14.1")


def chosen(given: PatchContext) -> set[str]:
    """Ids of the patches that would apply, each in its own phase."""
    load_patches(given.backend)
    return {
        patch.id
        for patch in REGISTRY.patches(given.backend)
        if decide(patch, replace(given, phase=patch.phase), Selection()).applies  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("backend", ["megatron", "megatron_training"])
def test_both_loops_get_the_patches_of_the_core(backend: str) -> None:
    assert chosen(context(backend=backend)) >= FOR_CPUS | EVERYWHERE


def test_on_gpus_the_core_is_left_as_it_is_but_for_what_is_wrong_there_too() -> None:
    applied = chosen(context(overrides=ON_A_GPU))
    assert applied >= EVERYWHERE
    assert applied.isdisjoint(FOR_CPUS)


@pytest.mark.parametrize(
    ("version", "patch"), [("0.17.1", "megatron.moe-te-gemm"), ("0.19.2", "megatron.moe-balance-scale")]
)
def test_what_upstream_mended_is_not_patched(version: str, patch: str) -> None:
    assert patch in chosen(context())
    assert patch not in chosen(context(version))


@pytest.mark.parametrize("fused", [True, False])
def test_an_optimizer_is_patched_unless_megatron_found_a_fused_one(
    monkeypatch: pytest.MonkeyPatch, fused: bool
) -> None:
    module = types.ModuleType("distrib_optimizer")
    module.HAVE_APEX_OR_TE = fused  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.optimizer.distrib_optimizer", module)
    assert torch_adam(context()) is not fused


@pytest.mark.parametrize(
    ("module", "message", "passes"),
    [
        ("megatron.core.optimizer", "Transformer Engine and Apex are not installed. Falling back.", False),
        ("mylib.optimizer", "Apex is not installed.", True),
        ("megatron.core.optimizer", "the loss is not a number", True),
    ],
)
def test_a_notice_is_dropped_by_its_text_and_its_module(module: str, message: str, passes: bool) -> None:
    load_patches("megatron")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_patches("before_import", context(), selection=Selection(enabled=("megatron.notices",)))
        warnings.warn_explicit(message, UserWarning, "file", 1, module=module)
    assert [str(warning.message) for warning in caught] == ([message] if passes else [])


@pytest.mark.parametrize(
    ("source", "rewritten"),
    [
        ("y = x.cuda()", "y = __primus_cpu_torch__.stay(x)"),
        ("y = f(x).cuda(0, non_blocking=True)", "y = __primus_cpu_torch__.stay(f(x), 0, non_blocking=True)"),
        ("y = x.type() == 'z'", "y = __primus_cpu_torch__.type_name(x) == 'z'"),
        ("y = x.type(float)", "y = x.type(float)"),
        ("y = x.pin_memory().cuda()", "y = __primus_cpu_torch__.stay(__primus_cpu_torch__.unpinned(x))"),
        ("def f():\n    import torch", "def f():\n    import torch\n    torch = __primus_cpu_torch__.TORCH"),
        ("import torch.nn as nn", "import torch.nn as nn"),
    ],
)
def test_calls_that_need_a_gpu_are_rewritten_and_only_they(source: str, rewritten: str) -> None:
    tree = cpu_import._Rewriter().visit(ast.parse(source))
    assert ast.unparse(ast.fix_missing_locations(tree)) == rewritten


def test_it_is_refused_after_a_module_of_megatron_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [finder for finder in sys.meta_path if not isinstance(finder, cpu_import._Finder)]
    monkeypatch.setattr(sys, "meta_path", plain)
    monkeypatch.setitem(sys.modules, "megatron.core.early", types.ModuleType("megatron.core.early"))
    with pytest.raises(RuntimeError, match="before it could be fitted"):
        cpu_import.install()


def test_the_loader_rebinds_torch_in_modules_of_megatron_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("packages")
    for package in ("megatron", "otherlib"):
        (folder / package).mkdir()
        (folder / package / "part.py").write_text(
            "import torch\nfrom torch import cuda\nfrom torch.cuda import current_device\n"
            "made = torch.zeros(1, device='cpu').type()\n"
        )
    known = {name for name in sys.modules if name.partition(".")[0] == "megatron"}
    for name in known:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(str(folder))
    cpu_import.install()
    import megatron.part as changed
    import otherlib.part as plain  # type: ignore[import-not-found]
    import torch

    assert (changed.torch.cuda.current_device(), changed.cuda.is_available()) == (torch.device("cpu"), False)
    assert changed.current_device() == torch.device("cpu")
    assert changed.torch.zeros(2, device="cuda").device.type == "cpu"
    assert changed.made == "torch.cuda.FloatTensor"
    assert (plain.torch, plain.cuda, plain.made) == (torch, torch.cuda, "torch.FloatTensor")
    # Not by monkeypatch, which would bring them back.
    for name in [name for name in sys.modules if name.partition(".")[0] in ("megatron", "otherlib")]:
        del sys.modules[name]
