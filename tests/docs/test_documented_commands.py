"""Every documented command is true: each one composes, and none names a file or key that is not there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from primus_hydra.app import parse_flags
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.reference import reference_page
from primus_hydra.config.sweep import expand_sweep

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SET_UP = {"./bootstrap && .venv/bin/python -m primus_hydra", "./bootstrap dev && .venv/bin/python -m pytest -n 2"}
"""The two commands that `.ci/run` takes out of the README and runs word for word."""


def documented() -> list[tuple[str, str]]:
    """Return (page, command) for each line of each ```sh block."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            found += [(page.name, line) for line in block.splitlines() if line.strip() and line not in SET_UP]
    return found


def arguments(command: str) -> list[str]:
    """Return what follows `-m primus_hydra`; any other command has no place in a ```sh block."""
    words = shlex.split(command)
    assert "primus_hydra" in words, f"not a command of ours: {command}"
    return words[words.index("primus_hydra") + 1 :]


@pytest.mark.parametrize(("page", "command"), documented())
def test_a_documented_command_composes(page: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flags = parse_flags(arguments(command))
    points = [list(point.overrides) for point in expand_sweep(flags.overrides)] if flags.multirun else [flags.overrides]

    for overrides in points:
        assert compose(Request(overrides=overrides)).job.model.name


def test_the_reference_page_is_the_schemas() -> None:
    assert (ROOT / "docs" / "reference.md").read_text(encoding="utf-8") == reference_page()


def test_every_page_that_is_linked_exists() -> None:
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    ]

    assert links
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []
