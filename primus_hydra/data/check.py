"""Cheap checks of data and tokenizer, before a queue: paths, extensions, first records; nothing is read to its end."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from primus_hydra.config.schema import DataConfig, JobConfig
from primus_hydra.data.file_list import list_files
from primus_hydra.data.file_readers import format_of, read_file
from primus_hydra.data.hf_dataset import check_hf
from primus_hydra.data.megatron_corpus import check_megatron
from primus_hydra.data.packed_files import is_zst
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.data.stdlib_modules import stdlib_files, stdlib_root
from primus_hydra.data.streams import check_streams
from primus_hydra.data.tokenizer import check_tokenizer
from primus_hydra.errors import Problem

_FILES_OPENED: Final = 32
_RECORDS_READ: Final = 3


def check_data(job: JobConfig) -> list[Problem]:
    """Return what the user must mend in data and tokenizer, as far as a quick look tells."""
    return check_settings(job) + (_first_records(job.data) if job.data.kind == "text" else [])


def check_settings(job: JobConfig) -> list[Problem]:
    """Return what is wrong with the settings and paths alone; for a preparation that goes on to read everything."""
    if job.data.kind == "stream" and (streams := check_streams(job)):
        return streams
    problems = check_tokenizer(job) if _has_tokenizer(job) else []
    if job.validation.enable and _holds_nothing_out(job.data):
        what = "0 leaves no documents for validation, which is on"
        problems.append(
            Problem(key="data.validation_fraction", what=what, hint="set it to 0.01, or validation.enable=false")
        )
    if job.data.validation_path is not None and job.data.kind != "megatron":
        what = "only indexed data sets of Megatron are named for validation alone"
        problems.append(Problem(key="data.validation_path", what=what, hint="leave it out, or set data=megatron"))
    if job.data.kind == "text":
        problems += list_files(job.data.path).problems
    if job.data.kind == "hf":
        problems += check_hf(job.data)
    if job.data.kind == "megatron":
        problems += check_megatron(job)
    return problems


def missing_on_host(job: JobConfig) -> list[Problem]:
    """Return what this machine lacks for the data: optional libraries, or parts of the standard library."""
    if job.data.kind == "python_stdlib":
        return _missing_stdlib()
    if job.data.kind == "hf" and not _installed("datasets"):
        return [_library("a data set on disk", "datasets", "hf")]
    return _missing_readers(list_files(job.data.path).files) if job.data.kind == "text" else []


def _missing_readers(files: Sequence[Path]) -> list[Problem]:
    wanted = (
        ("parquet", "pyarrow", "parquet", any(format_of(file) == "parquet" for file in files)),
        (".zst files", "zstandard", "zstd", any(is_zst(file) for file in files)),
    )
    return [
        _library(what, module, extra) for what, module, extra, needed in wanted if needed and not _installed(module)
    ]


def _holds_nothing_out(data: DataConfig) -> bool:
    """Whether validation has no documents; prepared folders have splits of their own."""
    by_fraction = data.kind not in ("mock", "stream") and data.validation_path is None
    return by_fraction and data.validation_fraction == 0


def _has_tokenizer(job: JobConfig) -> bool:
    """Whether a tokenizer makes the tokens, or made them; none is trained for tokens that are already there."""
    return job.tokenizer.kind == "hf" if job.data.kind == "megatron" else job.data.kind != "mock"


def _first_records(data: DataConfig) -> list[Problem]:
    log = ProblemLog()
    for file in _some(list_files(data.path).files):
        if not _missing_readers([file]):
            for _ in islice(read_file(file, data.text_key, log), _RECORDS_READ):
                pass
    return log.problems


def _some(files: list[Path]) -> list[Path]:
    """Return all of a few files, or some of many at equal distances."""
    return files[:: max(1, -(-len(files) // _FILES_OPENED))]


def _missing_stdlib() -> list[Problem]:
    root = stdlib_root()
    _, missing = stdlib_files(root)
    if not missing:
        return []
    hint = "install the full standard library (Debian, Ubuntu: apt install libpython3-stdlib), or set data=text"
    return [Problem(key="data", what=f"{root} lacks the source of {', '.join(missing)}", hint=hint)]


def _installed(module: str) -> bool:
    return find_spec(module) is not None


def _library(what: str, module: str, extra: str) -> Problem:
    return Problem(
        key="data.kind",
        what=f"reading {what} needs {module}, which is not installed",
        hint=f'pip install "primus-hydra[{extra}]"',
    )
