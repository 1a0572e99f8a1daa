"""Everything that a rank says goes to its log: Python's logging and warnings, prints, and the output of native code.

The screen belongs to the launcher. The original standard error stays reachable for the one case without a launcher of
ours, a rank under an outer torchrun or srun.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from primus_hydra.runtime.signals import DUMP_SIGNAL

_FORMAT = "%(asctime)s rank {rank} %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, kw_only=True)
class RankLog:
    """The log of this rank, and the standard error that it had before."""

    path: Path
    original_stderr: TextIO


def redirect_to(path: Path, *, rank: int, title: str = "", level: int = logging.INFO) -> RankLog:
    """Append file descriptors 1 and 2 of this process to `path`, and point logging, warnings and faulthandler there.

    `title` begins the new part of a log that holds several attempts. Raises OSError if the file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    original = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", buffering=1)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.stdout = _line_stream(1)
    sys.stderr = _line_stream(2)
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    print(f"===== {started} rank {rank} process {os.getpid()} {title}".rstrip(), file=sys.stderr)
    _configure_logging(rank, level)
    faulthandler.enable(file=sys.stderr, all_threads=True)
    # Works in a rank that hangs in native code with Python's lock held: the handler is C and takes no lock.
    faulthandler.register(DUMP_SIGNAL, file=sys.stderr, all_threads=True)
    return RankLog(path=path, original_stderr=original)


def _line_stream(descriptor: int) -> TextIO:
    # Rewrapped, because a caller may have replaced sys.stdout by an object that never reaches the descriptor.
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _configure_logging(rank: int, level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT.format(rank=rank)))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
