"""What a rank says of its end. A rank that ends without saying anything has failed, whatever its exit code."""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from primus_hydra.errors import PrimusError
from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.paths import AttemptPaths

FAILED_EXIT_CODE = 1
"""Exit code of a rank whose training raised: Python's own for an unhandled exception."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one rank.

    `stopped` means that all ranks agreed to stop after `step` and that this step is saved. `time` (seconds since the
    epoch) orders failures: the first one is the cause, the others usually its echo.
    """

    rank: int
    status: Literal["finished", "stopped", "failed"]
    step: int | None = None
    restart: int = 0
    exit_code: int = 0
    message: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    time: float = field(default_factory=time.time)

    @property
    def good(self) -> bool:
        """Whether the rank did what it was asked to."""
        return self.status != "failed"

    def write(self, paths: AttemptPaths) -> None:
        """Write the outcome where the launcher looks for it."""
        write_json(paths.outcome(self.rank), asdict(self))


def failure(rank: int, error: BaseException, *, step: int | None = None, restart: int = 0) -> Outcome:
    """Describe an exception; an error that a person can mend carries its message alone."""
    mendable = isinstance(error, PrimusError)
    text = str(error).strip()
    return Outcome(
        rank=rank,
        status="failed",
        step=step,
        restart=restart,
        exit_code=_exit_code(error),
        message=text if mendable and text else f"{type(error).__name__}: {text}" if text else type(error).__name__,
        error_type=type(error).__name__,
        traceback=None if mendable else "".join(traceback.format_exception(error)),
    )


def read_outcome(path: Path) -> Outcome | None:
    """Read one rank's outcome; None while there is none, or if the file is damaged."""
    data: dict[str, Any] | None = read_json(path)
    try:
        return Outcome(**data) if data is not None else None
    except TypeError:
        return None


def _exit_code(error: BaseException) -> int:
    if isinstance(error, PrimusError):
        return int(error.exit_code)
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code != 0:
        return error.code
    return FAILED_EXIT_CODE
