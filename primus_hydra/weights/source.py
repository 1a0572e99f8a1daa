"""What kind of weights lie in a folder: a Hugging Face model, a checkpoint of a backend, or a run with checkpoints.

Told from the names of files alone. A run names its model and its tokenizer beside its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from primus_hydra.config.build import build, load_job
from primus_hydra.config.schema import ModelConfig
from primus_hydra.errors import Problem, UserError
from primus_hydra.run.atomic import read_json
from primus_hydra.run.checkpoints import checkpoint_steps, complete_steps
from primus_hydra.run.manifest import damage, read_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.weights.folder import CONFIG_FILE
from primus_hydra.weights.request import JOURNAL, Kind

KEY: Final = "task.source"
_METADATA: Final = ".metadata"
_OF_MEGATRON: Final = "metadata.json"
_TOKENIZER: Final = "tokenizer.json"
_LATEST: Final = "latest_checkpointed_iteration.txt"
"""Of a folder that upstream's Megatron saves into: the number of the newest checkpoint, or `release`."""


@dataclass(frozen=True, kw_only=True)
class WeightSource:
    """A folder of weights; `model` is what saved them says of it, where it says so."""

    folder: Path
    kind: Kind
    model: ModelConfig | None = None
    tokenizer_dir: str | None = None


def find_source(named: str, runs: Path, step: int | None) -> WeightSource:
    """Look at a path, or at a run named below `runs`; `step` chooses a run's checkpoint, None the newest whole one.

    Raises UserError for what holds no weights.
    """
    for folder in (runs / named, Path(named).expanduser()):
        if folder.is_dir():
            return _look(folder.resolve(), step)
    hint = f"looked for {Path(named).expanduser().absolute()}, and for a run below {runs.absolute()}"
    raise UserError(Problem(key=KEY, what=f"there is no folder or run {named!r}", hint=hint))


def _look(folder: Path, step: int | None) -> WeightSource:
    run = RunPaths(folder)
    if run.config.is_file() and run.checkpoints.is_dir():
        return _of_run(run, _step_folder(run, step))
    if step is not None:
        what = f"{folder.name} is no run, so it has no steps to choose from"
        raise UserError(Problem(key="task.step", what=what, where=str(folder)))
    if (folder / CONFIG_FILE).is_file() or any(folder.glob("*.safetensors")):
        return WeightSource(folder=folder, kind="hf")
    if (folder / _LATEST).is_file():
        return _look(_latest(folder), None)
    kind = _native_kind(folder)
    if kind is None:
        raise _nothing(folder)
    above = RunPaths(folder.parent.parent)
    if above.config.is_file() and above.checkpoints == folder.parent:
        return _of_run(above, folder)
    return _converted(_whole(folder), kind)


def _of_run(run: RunPaths, folder: Path) -> WeightSource:
    kind = _native_kind(folder)
    if kind is None:
        raise _nothing(folder)
    return WeightSource(
        folder=_whole(folder), kind=kind, model=load_job(run.config).model, tokenizer_dir=_tokenizer(run)
    )


def _converted(folder: Path, kind: Kind) -> WeightSource:
    """Return a checkpoint on its own; one that we converted tells its model, and where the tokenizer was."""
    task = (read_json(folder / JOURNAL) or {}).get("task")
    if not isinstance(task, dict):
        return WeightSource(folder=folder, kind=kind)
    model, _ = build(ModelConfig, {**task["model"], "name": folder.name})
    tokenizer = str(task["source"]) if (Path(str(task["source"])) / _TOKENIZER).is_file() else None
    return WeightSource(folder=folder, kind=kind, model=model, tokenizer_dir=tokenizer)


def _step_folder(run: RunPaths, step: int | None) -> Path:
    if step is not None and run.checkpoint(step).is_dir():
        return run.checkpoint(step)
    there = checkpoint_steps(run) if step is not None else complete_steps(run)
    if step is None and there:
        return run.checkpoint(there[-1])
    what = "the run has no whole checkpoint" if step is None else f"the run has no checkpoint at step {step}"
    hint = f"steps: {', '.join(map(str, there))}" if there else None
    raise UserError(Problem(key=KEY if step is None else "task.step", what=what, where=str(run.checkpoints), hint=hint))


def _native_kind(folder: Path) -> Kind | None:
    if not (folder / _METADATA).is_file():
        return None
    manifest = read_manifest(folder)
    extra = manifest.get("extra") if manifest else None
    if isinstance(extra, dict) and "backend" in extra:
        return "megatron" if str(extra["backend"]).startswith("megatron") else "torchtitan"
    return "megatron" if (folder / _OF_MEGATRON).is_file() else "torchtitan"


def _whole(folder: Path) -> Path:
    fault = damage(folder) if read_manifest(folder) is not None else None
    if fault is not None:
        raise UserError(Problem(key=KEY, what=f"the checkpoint is damaged: {fault}", where=str(folder)))
    return folder


def _latest(folder: Path) -> Path:
    word = (folder / _LATEST).read_text(encoding="utf-8").strip()
    return folder / (f"iter_{int(word):07}" if word.isdigit() else word)


def _tokenizer(run: RunPaths) -> str | None:
    """Return the tokenizer that the newest attempt of a run used, if it is still there."""
    for number in reversed(run.attempt_numbers()):
        data = (read_json(run.attempt(number).spec) or {}).get("data")
        folder = data.get("tokenizer_dir") if isinstance(data, dict) else None
        if folder is not None and Path(str(folder)).is_dir():
            return str(folder)
    return None


def _nothing(folder: Path) -> UserError:
    steps = sorted(folder.glob("step-*"))
    hint = f"name a step folder, such as {steps[-1]}" if steps else "name a Hugging Face folder, a checkpoint, or a run"
    what = f"it holds no weights: no {CONFIG_FILE} with *.safetensors, and no {_METADATA} of a checkpoint"
    return UserError(Problem(key=KEY, what=what, where=str(folder), hint=hint))
