"""What the tests of data share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepare import prepare_data
from primus_hydra.data.prepared import PreparedData
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.errors import Problem
from tests.support import make_job

SMALL = {"tokenizer.vocab_size": 300, "training.seq_length": 16}


def text_job(path: Path | str | list[str], overrides: dict[str, Any] | None = None) -> JobConfig:
    where = path if isinstance(path, list) else str(path)
    return make_job({"data.kind": "text", "data.path": where, **SMALL, **(overrides or {})})


def prepare(job: JobConfig, lines: list[str] | None = None) -> PreparedData:
    return prepare_data(job, report=(lines if lines is not None else []).append)


def read(reader, *arguments) -> tuple[list[str], list[Problem]]:
    log = ProblemLog()
    return list(reader(*arguments, log)), log.problems
