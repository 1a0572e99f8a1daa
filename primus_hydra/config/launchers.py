"""`hydra/launcher`: where a job starts. Refuses launchers that this command does not know, and sweeps over them."""

from __future__ import annotations

import re
from typing import get_args

from primus_hydra.config.composed import Launcher
from primus_hydra.config.suggest import nearest
from primus_hydra.errors import Problem

LAUNCHER_GROUP = "hydra/launcher"
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)


def launcher_problem(option: str | None) -> Problem | None:
    """Say what is wrong with the launcher that an override chooses; None if it is one of ours."""
    if option in LAUNCHERS:
        return None
    listed = ", ".join(LAUNCHERS)
    if option is None or re.search(r"[,(]", option):
        what = "every point of a sweep starts by the same launcher"
        return Problem(key=LAUNCHER_GROUP, what=what, hint=f"choose one of {listed}")
    near = nearest(option, LAUNCHERS)
    hint = f"did you mean {near[0]}? " if near else ""
    return Problem(key=LAUNCHER_GROUP, what=f"there is no launcher {option!r}", hint=f"{hint}launchers: {listed}")


def launcher_of(choice: str | None) -> Launcher | Problem:
    """Return the launcher that the defaults list chose, an experiment's too, or what is wrong with it."""
    for name in LAUNCHERS:
        if name == choice:
            return name
    return launcher_problem(choice) or Problem(key=LAUNCHER_GROUP, what="no launcher is chosen")
