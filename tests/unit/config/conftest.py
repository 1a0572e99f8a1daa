"""A user's configuration folder, and composition that does not look at this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.composed import Composed

Write = Callable[[str, str], Path]
Compose = Callable[..., Composed]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the user's configuration folder."""

    def write_file(name: str, text: str) -> Path:
        file = tmp_path / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def composed(tmp_path: Path) -> Compose:
    """Compose overrides for a CPU, with the user's folder where there is one."""

    def run(*overrides: str) -> Composed:
        folder = tmp_path / "conf"
        named = [] if any(text.startswith("platform=") for text in overrides) else ["platform=cpu"]
        return compose(Request(overrides=[*named, *overrides], config_dirs=[folder] if folder.is_dir() else []))

    return run
