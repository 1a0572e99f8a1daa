"""A package of a user's own with hooks, which allows its functions as targets."""

from __future__ import annotations

from pathlib import Path

HOOKS = """
import os, signal, sys, time
from primus_hydra.errors import HostError, UserError
from primus_hydra.hooks import HookContext, Skip


def tell(rows, *, hook):
    assert isinstance(hook, HookContext)
    print(hook.phase, hook.attempt, hook.outcome, sys.stdin.read())
    print("env.PRINTED=1")
    return {"env.ROWS": rows, "extra.hook.rows": rows}


def nothing():
    return None


def end(how, value=None):
    if how == "skip":
        raise Skip(value)
    if how == "user":
        raise UserError(value)
    if how == "host":
        raise HostError(value)
    if how == "bug":
        return {}[value]
    if how == "exit":
        sys.exit(value)
    if how == "quietly":
        os._exit(value)
    if how == "signal":
        os.kill(os.getpid(), value)
    if how == "sleep":
        time.sleep(value)
    return value


def build(part):
    return {"extra.part": part}


def part(name):
    return name.upper()
"""


def install(folder: Path) -> Path:
    """Put the package in a folder, as an installer would; return the folder."""
    (folder / "user_hooks.py").write_text(HOOKS)
    info = folder / "user_hooks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: user-hooks\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("user_hooks\n")
    (info / "entry_points.txt").write_text("[primus_hydra.targets]\nuser_hooks = user_hooks\n")
    return folder
