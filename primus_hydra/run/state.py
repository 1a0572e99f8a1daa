"""What became of the run, in one small file that the launcher alone writes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.space import FULL

Status = Literal["running", "saved", "finished", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class RunState:
    """State after the latest event. Times are seconds since the epoch; `saved` waits for another attempt."""

    status: Status
    step: int
    steps: int
    attempt: int
    started_at: float
    updated_at: float
    exit_code: int | None = None
    message: str | None = None


def write_state(path: Path, state: RunState) -> None:
    """Replace the state file in one step; on a full disk it is written over in its place. Raises OSError.

    A run that ends because its disk is full must not leave a state that says it is at work.
    """
    try:
        write_json(path, asdict(state))
    except OSError as error:
        if error.errno not in FULL or not path.exists():
            raise
        _write_over(path, json.dumps(asdict(state)).encode())


def _write_over(path: Path, content: bytes) -> None:
    """Use the room that the file has; blanks fill what is left of it."""
    room = path.stat().st_size
    with path.open("r+b") as file:
        file.write(content.ljust(room))
        file.flush()
        os.fsync(file.fileno())


def read_state(path: Path) -> RunState | None:
    """Return the state, or None where the file is absent or is not a state (torn, of another program)."""
    data = read_json(path)
    if data is None:
        return None
    try:
        return _state_of(data)
    except (KeyError, TypeError, ValueError):
        return None


def _state_of(data: dict[str, object]) -> RunState:
    code, message = data.get("exit_code"), data.get("message")
    return RunState(
        status=_status_of(data["status"]),
        step=int(str(data["step"])),
        steps=int(str(data["steps"])),
        attempt=int(str(data["attempt"])),
        started_at=float(str(data["started_at"])),
        updated_at=float(str(data["updated_at"])),
        exit_code=None if code is None else int(str(code)),
        message=None if message is None else str(message),
    )


def _status_of(raw: object) -> Status:
    for status in get_args(Status):
        if raw == status:
            return status  # type: ignore[no-any-return]
    raise ValueError(f"not a status of a run: {raw!r}")
