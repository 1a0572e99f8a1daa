"""Whether a run can start from the Hugging Face weights that `init_from=hf:DIR` names, said before anything starts.

Compares config.json with the job's model field by field, then every tensor with what the model needs. With
`launch.check_paths=false` a folder that is not here is taken on trust.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from primus_hydra.config.init_from import HF, hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, raise_all
from primus_hydra.weights.folder import CONFIG_FILE, KEY, HfFolder, read_folder
from primus_hydra.weights.headers import FLOATS
from primus_hydra.weights.hf_config import Difference, differences
from primus_hydra.weights.tensors import expected_tensors, may_be_ignored, unknown_form

_SHOWN = 3


def hf_problems(job: JobConfig, vocab_size: int | None) -> list[Problem]:
    """Return everything that stands against starting from `init_from=hf:DIR`; nothing without such a value.

    `vocab_size` is the number of rows of the job's embedding; None where it is not known, which is reported elsewhere.
    """
    path = hf_folder(job.init_from)
    if path is None or vocab_size is None:
        return []
    unknown = unknown_form(job.model)
    if unknown:
        return [Problem(key=KEY, what=unknown)]
    if not path.is_dir() and not job.launch.check_paths:
        return []
    return _folder_problems(read_folder(path), job, vocab_size)


def open_hf(path: Path, job: JobConfig, vocab_size: int, *, key: str = KEY) -> HfFolder:
    """Return what a folder holds, on the machine that reads it; raises UserError with everything that is wrong.

    `key` is the one that named the folder.
    """
    found = read_folder(path)
    raise_all([replace(problem, key=key) for problem in _folder_problems(found, job, vocab_size)])
    return found


def export_problems(job: JobConfig) -> list[Problem]:
    """Return why the final weights cannot be written as a Hugging Face model; nothing where they need not be."""
    unknown = unknown_form(job.model) if job.checkpoint.export_hf else None
    return [Problem(key="checkpoint.export_hf", what=unknown, hint="set it to false")] if unknown else []


def plain_folder_hint(folder: Path) -> str | None:
    """Return the words that mend a folder of Hugging Face weights given without the prefix."""
    return f"write init_from={HF}{folder}" if any(folder.glob("*.safetensors")) else None


def _folder_problems(found: HfFolder, job: JobConfig, vocab_size: int) -> list[Problem]:
    return found.problems or _config_problems(found, job, vocab_size) or list(_tensor_problems(found, job, vocab_size))


def _config_problems(found: HfFolder, job: JobConfig, vocab_size: int) -> list[Problem]:
    return [_disagreement(found, item, job) for item in differences(found.config, job.model, vocab_size)]


def _disagreement(found: HfFolder, item: Difference, job: JobConfig) -> Problem:
    where = str(found.path / CONFIG_FILE)
    what = f"{item.field} is {item.theirs} in the folder, the job's model has {item.ours}"
    if item.key == "model.vocab_size" and job.model.vocab_size is None:
        hint = f"use the folder's tokenizer: tokenizer.kind=hf tokenizer.path={found.path}, or set {item.key}"
    elif item.key is None:
        hint = "no model of ours is like that"
    else:
        hint = f"set {item.key} to what the folder has, or choose the model of the folder"
    return Problem(key=KEY, what=what, where=where, hint=hint)


def _tensor_problems(found: HfFolder, job: JobConfig, vocab_size: int) -> Iterator[Problem]:
    expected = expected_tensors(job.model, vocab_size)
    missing = [name for name in expected if name not in found.tensors]
    if missing:
        yield _about(found, f"the folder lacks {_count(missing)} of the model: {_some(missing)}")
    strange = [name for name in found.tensors if name not in expected and not may_be_ignored(name, job.model)]
    if strange:
        yield _about(found, f"the folder holds {_count(strange)} that the model does not have: {_some(strange)}")
    shared = {name: info for name, info in found.tensors.items() if name in expected}
    misshaped = [
        f"{name} {info.shape}, not {expected[name]}" for name, info in shared.items() if info.shape != expected[name]
    ]
    if misshaped:
        yield _about(found, f"the folder holds {_count(misshaped)} of another shape: {_some(misshaped)}")
    odd = [f"{name} {info.dtype}" for name, info in shared.items() if info.dtype not in FLOATS]
    if odd:
        yield _about(
            found, f"the folder holds {_count(odd)} in another number format than {', '.join(FLOATS)}: {_some(odd)}"
        )


def _about(found: HfFolder, what: str) -> Problem:
    return Problem(key=KEY, what=what, where=str(found.path))


def _count(names: Sequence[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
