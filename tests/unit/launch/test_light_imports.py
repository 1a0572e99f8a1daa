"""The way to the start of the ranks imports little: what a start waits for is counted in tenths of a second."""

from __future__ import annotations

import subprocess
import sys


def imported_by(module: str, names: list[str]) -> str:
    """Return which of `names` are loaded after a module was imported in a fresh Python."""
    code = f"import sys, {module}; print(*[name for name in {names!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_agent_starts_its_server_before_it_imports_anything_else() -> None:
    heavy = ["torch", "yaml", "psutil", "primus_hydra.config", "primus_hydra.launch.plan", "primus_hydra.launch.group"]

    assert imported_by("primus_hydra.launch.agent", heavy) == ""


def test_the_picture_of_a_run_is_drawn_with_what_is_imported_at_its_end() -> None:
    assert imported_by("primus_hydra.tasks.train", ["matplotlib", "torch", "pandas", "pyarrow"]) == ""
