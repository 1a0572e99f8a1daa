"""A sign of life of the first node in the folder of the results, by which who waits for it sees that it hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from primus_hydra.run.atomic import read_json, write_json

FILE = "beat.json"
HERE = "here"
"""Folder with an empty file for every node that has come."""
EVERY_S = 2.0


@contextlib.contextmanager
def beating(folder: Path) -> Iterator[None]:
    """Count in the folder while the block runs, and take the count away at its end."""
    over = threading.Event()

    def beat() -> None:
        count = 0
        while not over.wait(EVERY_S if count else 0):
            count += 1
            with contextlib.suppress(OSError):  # a disk that is full for a while must not end the tests
                write_json(folder / FILE, {"count": count})

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(EVERY_S)
        (folder / FILE).unlink(missing_ok=True)


def note_here(folder: Path, host: str) -> None:
    """Leave word that a node has come."""
    (folder / HERE).mkdir(parents=True, exist_ok=True)
    (folder / HERE / host).touch()


class Listener:
    """Says for how long there was no new beat; clocks of two machines are not compared."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._count: object = None
        self._since: float | None = None

    def silent_s(self, now: float) -> float:
        """Return the seconds since the last change that was seen; `now` is the caller's own clock."""
        data = read_json(self._file)
        count = None if data is None else data.get("count")
        if self._since is None or count != self._count:
            self._count, self._since = count, now
        return now - self._since
