"""Each patch of torchtitan mends what it says: the symptom without it, and its absence with it, on one process."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torchtitan.trainer
from torchtitan.components import metrics
from torchtitan.config.override import OverrideConfig, apply_overrides
from torchtitan.distributed import utils as distributed_utils
from torchtitan.models.common import attention
from torchtitan.models.common.attention import create_attention_mask, get_causal_mask_mod
from torchtitan.tools import utils

from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.patches.torchtitan.attention import CPU_ATTENTION
from primus_hydra.patching import REGISTRY, PatchContext, Selection, load_patches, run_patches
from primus_hydra.patching.context import Phase
from tests.support import make_job
from tests.unit.backends.torchtitan.titan_models import logits, neutral

ON_CPU_ONLY = {
    "torchtitan.cpu-device",
    "torchtitan.cpu-memory",
    "torchtitan.cpu-barrier",
    "torchtitan.cpu-sum-reduction",
    "torchtitan.cpu-attention",
    "torchtitan.cpu-block-mask",
    "torchtitan.cpu-initial-weights",
}
GPU = {
    "platform.name": "mi300x",
    "platform.vendor": "amd",
    "platform.gpus_per_node": 8,
    "platform.peak_tflops": {"bfloat16": 1307.4},
    "precision.compute": "bfloat16",
}


def apply(patch_id: str, phase: Phase = "build_args", native: Any = None, **overrides: Any) -> list[str]:
    """Run one patch as the runtime does; return the ids that were applied."""
    load_patches("torchtitan")
    context = PatchContext(
        job=make_job(overrides), backend="torchtitan", backend_version="0.3.0", torch_version="2.14.1", native=native
    )
    records = run_patches(phase, context, selection=Selection(enabled=(patch_id,)))
    return [record.id for record in records if record.status == "applied"]


EARLY_SYMPTOMS = """
import json, sys
import torch
sys.modules["triton"] = None
seen = {}
from primus_hydra.patching import PatchContext, Selection, load_patches, run_patches
from tests.support import make_job
load_patches("torchtitan")
context = PatchContext(job=make_job(), backend="torchtitan", backend_version="0.3.0", torch_version="2.14.1")
from torchtitan.tools import utils
seen["device_before"] = utils.device_type
seen["applied"] = [record.id for record in run_patches("before_import", context, selection=Selection(
    enabled=("torchtitan.cpu-device",))) if record.status == "applied"]
try:
    import torchtitan.trainer
except ModuleNotFoundError as error:
    seen["import_before"] = error.name
run_patches("before_import", context, selection=Selection(enabled=("torchtitan.no-triton",)))
import torchtitan.trainer
from torchtitan.components import metrics
from torchtitan.distributed.minimal_async_ep import kernels
seen["device_copied"] = metrics.device_type
try:
    kernels.copy_rows_to_peers_kernel(1)
except RuntimeError as error:
    seen["kernel"] = str(error)
try:
    run_patches("before_import", context, selection=Selection(enabled=("torchtitan.cpu-device",)))
except RuntimeError as error:
    seen["late"] = str(error)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def early() -> dict[str, Any]:
    """What a fresh process sees that has no triton, before and after the early patches."""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", EARLY_SYMPTOMS], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_the_device_is_the_cpu_only_with_the_patch(early: dict[str, Any]) -> None:
    assert early["device_before"] != "cpu"
    assert early["device_copied"] == "cpu"


def test_torchtitan_cannot_be_imported_without_triton_or_the_patch(early: dict[str, Any]) -> None:
    assert early["import_before"] == "triton"
    assert "needs triton" in early["kernel"]


def test_choosing_the_device_too_late_is_an_error(early: dict[str, Any]) -> None:
    assert "was imported before" in early["late"]


def test_no_stand_in_is_made_where_triton_is_installed() -> None:
    pytest.importorskip("triton")
    assert apply("torchtitan.no-triton", "before_import") == []


def test_the_memory_monitor_reads_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "device_type", "cpu")
    monkeypatch.setattr(metrics, "device_module", torch.cpu)
    monkeypatch.setattr(metrics, "build_device_memory_monitor", metrics.build_device_memory_monitor)
    with pytest.raises(AttributeError, match="get_device_name"):
        metrics.build_device_memory_monitor()
    assert apply("torchtitan.cpu-memory") == ["torchtitan.cpu-memory"]
    monitor = metrics.build_device_memory_monitor()
    stats = monitor.get_peak_stats()
    assert 0.05 < stats.max_reserved_gib < monitor.device_capacity_gib
    assert stats.max_active_pct == pytest.approx(100 * stats.max_active_gib / monitor.device_capacity_gib)


def test_the_peak_is_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "get_peak_flops", utils.get_peak_flops)
    assert utils.get_peak_flops("a processor") == 312e12  # torchtitan's guess: an A100
    apply("torchtitan.peak-flops", **GPU)
    assert utils.get_peak_flops("AMD Instinct MI300X") == 1307.4e12
    apply("torchtitan.peak-flops")
    assert utils.get_peak_flops("a processor") == math.inf


def test_the_pipeline_notice_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(torchtitan.trainer, "ensure_pp_loss_visible", torchtitan.trainer.ensure_pp_loss_visible)
    monkeypatch.delenv("LOG_RANK", raising=False)
    dims = SimpleNamespace(world_size=2, pp=2)

    def notices() -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            torchtitan.trainer.ensure_pp_loss_visible(parallel_dims=dims, pp_schedule="1F1B", color=utils.NoColor())
        return len(caplog.records)

    assert notices() == 1
    assert apply("torchtitan.pipeline-loss-notice") == []
    apply("torchtitan.pipeline-loss-notice", **{"parallel.pp": 2})
    assert notices() == 0


def test_timeouts_change_without_device_ids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(distributed_utils, "device_module", torch.cpu)
    monkeypatch.setattr(distributed_utils, "set_pg_timeouts", distributed_utils.set_pg_timeouts)
    dims = SimpleNamespace(get_all_one_dimensional_meshes=dict)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        with pytest.raises(TypeError):
            distributed_utils.set_pg_timeouts(timedelta(seconds=17), dims)
        apply("torchtitan.cpu-barrier")
        distributed_utils.set_pg_timeouts(timedelta(seconds=17), dims)
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        assert backend.options._timeout == timedelta(seconds=17)
    finally:
        dist.destroy_process_group()


def test_block_masks_are_made_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.tensor.experimental._context_parallel import _attention as context_parallel

    monkeypatch.setattr(attention, "_compiled_create_block_mask", attention._compiled_create_block_mask)
    monkeypatch.setattr(context_parallel, "_compiled_create_block_mask", None)
    arguments = (get_causal_mask_mod(), 2, None, 256, 256)
    with torch.compiler.set_stance("fail_on_recompile"):
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            create_attention_mask(*arguments, device="cpu")
        apply("torchtitan.cpu-block-mask")
        assert create_attention_mask(*arguments, device="cpu").shape == (2, 1, 256, 256)
    assert context_parallel._compiled_create_block_mask is attention._compiled_create_block_mask


def test_a_model_trains_only_with_the_cpu_attention() -> None:
    tokens = torch.randint(128, (1, 32))
    spec = model_spec(neutral(num_hidden_layers=1), vocab_size=128, seq_length=32)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        logits(spec.model.build(), tokens).sum().backward()
    native = SimpleNamespace(override=OverrideConfig())
    apply("torchtitan.cpu-attention", native=native)
    apply("torchtitan.cpu-attention", native=native)
    assert native.override.imports == [CPU_ATTENTION]
    apply_overrides(native.override, spec.model)
    model = spec.model.build()
    logits(model, tokens).sum().backward()
    assert model.layers["0"].attention.wo.weight.grad is not None


def test_processor_patches_stay_away_from_accelerators() -> None:
    load_patches("torchtitan")
    ids = {patch.id for patch in REGISTRY.patches("torchtitan")}
    assert ids >= ON_CPU_ONLY
    for patch in REGISTRY.patches("torchtitan"):
        if patch.id in ON_CPU_ONLY:
            assert apply(patch.id, patch.phase, **GPU) == []  # type: ignore[arg-type]
