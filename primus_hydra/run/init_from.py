"""Looks at the checkpoint that a run starts from, before a rank is started: whole, of this backend, of this model.

Says nothing of `hf:DIR`, nor of a folder that is not on this machine: the job may run on another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, UserError, raise_all
from primus_hydra.run.manifest import damage, read_manifest
from primus_hydra.run.model_shape import differences, shape_of

KEY = "init_from"
_METADATA = ".metadata"
_BY_THE_BACKEND: Mapping[str, str] = {"megatron": "metadata.json"}
"""A file that a backend's checkpoints have beside torch's `.metadata`, and others' do not."""


def init_from_problems(job: JobConfig, vocab_size: int | None = None) -> list[Problem]:
    """Return why the run cannot start from the checkpoint that `init_from` names; reads its files, at most partly.

    `vocab_size` counts where the model leaves its own open; None where it is not known yet.
    """
    if job.init_from is None or hf_folder(job.init_from) is not None:
        return []
    folder = Path(job.init_from).expanduser()
    return checkpoint_problems(folder, job, vocab_size) if folder.is_dir() else []


def require_checkpoint(job: JobConfig, vocab_size: int | None = None) -> Path:
    """Return the folder that `init_from` names, as a rank needs it; raises UserError with every problem."""
    folder = Path(job.init_from or "").expanduser().resolve()
    if not folder.is_dir():
        raise UserError(Problem(key=KEY, what=f"{folder} is not a folder"))
    raise_all(checkpoint_problems(folder, job, vocab_size))
    return folder


def checkpoint_problems(folder: Path, job: JobConfig, vocab_size: int | None) -> list[Problem]:
    """Return why the weights in `folder` cannot start the run."""
    manifest = read_manifest(folder)
    extra = manifest.get("extra") if manifest else None
    if not isinstance(extra, dict):
        return _without_manifest(folder, job)
    other = _other_backend(folder, job, extra.get("backend"))
    wanted = shape_of(job.model, vocab_size)
    return other or [*_damage(folder), *_other_model(folder, wanted, extra.get("model"))]


def _without_manifest(folder: Path, job: JobConfig) -> list[Problem]:
    """Judge a checkpoint that some other program wrote, or whose save did not finish."""
    wanted = (_METADATA, *filter(None, [_BY_THE_BACKEND.get(_family(job.backend.name))]))
    missing = [name for name in wanted if not (folder / name).is_file()]
    if not missing:
        return []
    lacks = " and no ".join(missing)
    what = f"{folder} is not a checkpoint that {job.backend.name} can read (it has no {lacks})"
    return [Problem(key=KEY, what=what, hint=_hint(folder))]


def _hint(folder: Path) -> str:
    if any(folder.glob("*.safetensors")):
        return f"write init_from=hf:{folder}"
    if any(folder.glob("step-*")) or any(folder.glob("checkpoints/step-*")):
        return "name the step folder itself, such as .../checkpoints/step-1000"
    if (folder / _METADATA).is_file():
        return "the backend that wrote it can export it with checkpoint.export_hf=true, for init_from=hf:FOLDER"
    return "name the step folder of a finished save, such as .../checkpoints/step-1000"


def _other_backend(folder: Path, job: JobConfig, saved_by: object) -> list[Problem]:
    if saved_by is None or _family(str(saved_by)) == _family(job.backend.name):
        return []
    return [
        Problem(
            key=KEY,
            what=f"{folder} was saved by backend={saved_by}, whose files {job.backend.name} cannot read",
            hint=f"use backend={saved_by}, or export there with checkpoint.export_hf=true and use init_from=hf:FOLDER",
        )
    ]


def _family(backend: str) -> str:
    """Return who reads a backend's files: both ways to train with Megatron share one format."""
    return "megatron" if backend.startswith("megatron") else backend


def _damage(folder: Path) -> list[Problem]:
    fault = damage(folder)
    if fault is None:
        return []
    return [Problem(key=KEY, what=f"{folder} is damaged: {fault}", hint="use another checkpoint of that run")]


def _other_model(folder: Path, wanted: Mapping[str, object], saved: object) -> list[Problem]:
    if not isinstance(saved, dict):
        return []
    found = differences(saved, wanted)
    if not found:
        return []
    name = f" ({saved['name']})" if "name" in saved else ""
    return [
        Problem(
            key=KEY,
            what=f"{folder} holds another model{name}: {', '.join(found)}",
            hint="choose that model, or a checkpoint of this one",
        )
    ]
