"""What became of each tracker, in a small file that the launcher shows to the user at the end."""

from __future__ import annotations

import logging
from pathlib import Path

from primus_hydra.run.atomic import read_json, write_json

logger = logging.getLogger(__name__)


class TrackerStatus:
    """Keeps, per tracker, where to look and what went wrong; written by the one rank that logs metrics."""

    def __init__(self, folder: Path) -> None:
        self._path = _status_path(folder)
        self._entries: dict[str, dict[str, str]] = {}

    def opened(self, name: str, look: str) -> None:
        """Record where the results can be seen: an address, or the command that shows them."""
        logger.info("tracker %s: %s", name, look)
        self._note(name, "look", look)

    def dropped(self, name: str, problem: str) -> None:
        """Record why a tracker gets nothing more; the run goes on."""
        logger.warning("tracker %s is dropped, the run goes on: %s", name, problem)
        self._note(name, "problem", problem)

    def _note(self, name: str, key: str, text: str) -> None:
        self._entries.setdefault(name, {})[key] = text
        try:
            write_json(self._path, self._entries)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)


def read_tracker_status(folder: Path) -> dict[str, dict[str, str]]:
    """Return what a rank recorded in the trackers' folder: per tracker `look` and, if it failed, `problem`."""
    entries = read_json(_status_path(folder)) or {}
    return {
        name: {str(key): str(text) for key, text in entry.items()}
        for name, entry in entries.items()
        if isinstance(entry, dict)
    }


def _status_path(folder: Path) -> Path:
    return folder / "status.json"
