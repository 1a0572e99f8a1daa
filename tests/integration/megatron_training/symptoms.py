"""What goes wrong in upstream's loop without our patches, and no longer with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from primus_hydra.patching import PatchContext, Phase, Selection, run_patches
from tests.integration.megatron_training.words import UPSTREAM
from tests.support import make_job


def apply(patch: str, phase: Phase) -> None:
    """Run one patch as the runtime does."""
    context = PatchContext(
        job=make_job(UPSTREAM),
        backend="megatron_training",
        backend_version=version("megatron-core"),
        torch_version=version("torch"),
    )
    run_patches(phase, context, selection=Selection(enabled=(patch,)))


def told(act: Callable[[], Any]) -> str:
    """Return what an act raises, in words, or what it returns."""
    try:
        return str(act())
    except BaseException as error:  # upstream also leaves by SystemExit
        return f"{type(error).__name__}: {error}"


def starting() -> None:
    """Start upstream up to the point where it asks for its arguments."""
    from megatron.training import training

    training.initialize_megatron()


def counting() -> int:
    """Return how many devices upstream sees when it makes its groups."""
    from megatron.training import initialize

    return int(initialize.torch.cuda.device_count())


def compiling() -> None:
    """Let upstream build its helpers, as rank 0 does."""
    from megatron.core.datasets.utils import compile_helpers

    compile_helpers()


def warming() -> None:
    """Let upstream warm up its kernels, which needs its arguments."""
    from megatron.training import training

    training.set_jit_fusion_options()


def taking_override() -> None:
    """Take what upstream's own modules import; one of them, halfway imported, could not be imported again."""
    from typing import override  # noqa: F401


def observe(folder: Path, override_before: str) -> None:
    """Write what is seen without each patch and with it to FOLDER/seen.json.

    Upstream is imported, and no patch of phase `build_args` was applied yet; `override_before` was seen before any.
    """
    acts = {"start": starting, "devices": counting, "kernels": warming, "helpers": compiling}
    before = {name: told(act) for name, act in acts.items()}
    apply("megatron-training.cpu", "build_args")
    apply("megatron-training.built-helpers", "build_args")
    pairs = {name: [before[name], told(act)] for name, act in acts.items()}
    seen = pairs | {"override": [override_before, told(taking_override)]}
    (folder / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
