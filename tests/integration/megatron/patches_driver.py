"""Trains a small model on megatron-core several times, each time with other patches; a test reads what was seen.

Usage: `python -m tests.integration.megatron.patches_driver FOLDER`, where FOLDER holds `stages.json`. Megatron is
imported once, with the patches that come before its import; every rank of every stage is a forked child, so that no
patch outlives its stage. One child is forked before, for what Megatron does without the patch for processors.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

# Dynamo, which Megatron's import brings in, wraps functions of torch: that is not what the patches are asked about.
import torch._dynamo

from primus_hydra.patching import PatchContext, Selection, load_patches, run_patches
from tests.integration.megatron.patches_loop import Setup, build, load, save, train
from tests.support import make_job

_PROCESSES = 2
BARE = "bare"


@dataclass(kw_only=True)
class Stage:
    """One training: its number of ranks, its setup, the patches left out, and what is done (a function below)."""

    setup: dict[str, Any] = field(default_factory=dict)
    world: int = 1
    disabled: list[str] = field(default_factory=list)
    action: str = "losses"


@dataclass(kw_only=True)
class Report:
    """What one rank saw: losses, and whatever else the action reports; the type and text of an error."""

    losses: list[float] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def context() -> PatchContext:
    """Return the patch context of a job for the processor."""
    return PatchContext(
        job=make_job({"backend.name": "megatron"}),
        backend="megatron",
        backend_version=_version(),
        torch_version=torch.__version__.partition("+")[0],
    )


def _version() -> str:
    from importlib.metadata import version

    return version("megatron-core")


def losses(setup: Setup, folder: Path, report: Report) -> None:
    """Train three steps."""
    report.losses = train(build(setup), 3)


def reload(setup: Setup, folder: Path, report: Report) -> None:
    """Give the optimizer its own state back after one step, and train on."""
    training = build(setup)
    report.losses = train(training, 1)
    training.optimizer.load_state_dict(training.optimizer.state_dict())
    report.losses += train(training, 3)


def straight(setup: Setup, folder: Path, report: Report) -> None:
    """Train the four steps of `reload` without it."""
    report.losses = train(build(setup), 4)


def resume(setup: Setup, folder: Path, report: Report) -> None:
    """Train two steps, save, train two more; then build anew, load, and train the last two again."""
    from megatron.core import parallel_state

    training = build(setup)
    train(training, 2)
    for form in ("fully_reshardable", "dp_reshardable"):
        save(training, folder / form, form)
    report.losses = train(training, 2)
    for form in ("fully_reshardable", "dp_reshardable"):
        parallel_state.destroy_model_parallel()
        again = build(setup)
        load(again, folder / form, 2, form)
        report.more[form] = train(again, 2)


def seed(setup: Setup, folder: Path, report: Report) -> None:
    """Seed Megatron's generators, which every training begins with."""
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    model_parallel_cuda_manual_seed(7, tp_rank=0, ep_rank=0, etp_rank=0)


def noise(setup: Setup, folder: Path, report: Report) -> None:
    """Train, and report what was logged and warned."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        train(build(setup), 1)
        warnings.warn_explicit("about the run", UserWarning, "file", 1, module="megatron.core.anything")
    report.more = {"lines": lines, "warnings": [str(warning.message) for warning in caught]}


def scopes(setup: Setup, folder: Path, report: Report) -> None:
    """Report what of torch the patch for processors reached: in Megatron's modules, and in all others."""
    from primus_hydra.backends.megatron import cpu_torch

    late = "megatron.core.models.bert.bert_model"
    report.more["late"] = late in sys.modules
    __import__(late)
    report.losses = train(build(setup), 1)
    report.more["escaped"] = [name for name, value in _values("megatron.") if value is torch or value is torch.cuda]
    outside = [name for name, value in _values("") if isinstance(value, cpu_torch.Overlay)]
    ours = ("megatron.", cpu_torch.__name__)
    report.more["reached"] = sorted({name for name in outside if not name.startswith(ours)})
    report.more["unlike_before"] = [name for name, value in BEFORE.items() if value is not _torch_now()[name]]
    report.more["type"] = torch.zeros(1).type()
    try:
        torch.cuda.current_device()
    except (AssertionError, RuntimeError) as error:
        report.more["current_device"] = str(error)


def _values(beginning: str) -> list[tuple[str, Any]]:
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith(beginning)]
    return [(name, value) for name, module in modules for value in list(getattr(module, "__dict__", {}).values())]


def _torch_now() -> dict[str, Any]:
    cuda = {f"torch.cuda.{name}": value for name, value in vars(torch.cuda).items()}
    tensor = {f"torch.Tensor.{name}": getattr(torch.Tensor, name) for name in ("type", "cuda", "pin_memory")}
    top = {f"torch.{name}": value for name, value in vars(torch).items()}
    return cuda | tensor | top | {"sys.modules": sys.modules["torch"]}


BEFORE = _torch_now()
ACTIONS: dict[str, Callable[[Setup, Path, Report], None]] = {
    action.__name__: action for action in (losses, reload, straight, resume, seed, noise, scopes)
}


def run(stage: Stage, rank: int, folder: Path, *, bare: bool = False) -> Report:
    """Run one rank of a stage; call it in a child of its own."""
    import torch.distributed as dist

    report = Report()
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=stage.world)
    selection = Selection(disabled=tuple(stage.disabled))
    try:
        if not bare:
            for phase in ("before_import", "build_args"):
                run_patches(phase, context(), selection=selection)
        ACTIONS[stage.action](Setup(**stage.setup), folder, report)
    except Exception as error:
        traceback.print_exc()
        report.error = f"{type(error).__name__}: {error}"
    return report


def fork(stage: Stage, rank: int, folder: Path, **options: Any) -> int:
    """Run one rank of a stage in a child, which writes its report to `folder`; return its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        report = run(stage, rank, folder, **options)
        (folder / f"rank-{rank}.json").write_text(json.dumps(asdict(report)))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(folder: Path) -> None:
    """Run all stages, as many at a time as their ranks allow."""
    stages = {name: Stage(**entry) for name, entry in json.loads((folder / "stages.json").read_text()).items()}
    for name in (*stages, BARE):
        (folder / name).mkdir()
    running = {fork(Stage(action="seed"), 0, folder / BARE, bare=True)}
    _import_megatron()
    for name, stage in stages.items():
        while running and len(running) + stage.world > _PROCESSES:
            running.discard(os.wait()[0])
        running |= {fork(stage, rank, folder / name) for rank in range(stage.world)}
    while running:
        running.discard(os.wait()[0])


def _import_megatron() -> None:
    load_patches("megatron")
    run_patches("before_import", context(), selection=Selection(enabled=("megatron.cpu",)))
    import megatron.core.dist_checkpointing
    import megatron.core.dist_checkpointing.strategies.torch
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel.schedules  # noqa: F401


if __name__ == "__main__":
    main(Path(sys.argv[1]))
