"""Faults made from outside: signals to the processes of a run, another start of it, a clock."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable

from tests.drills.scene import Act, Scene, Typed

IN_STEP = Act(name="in-step", place="data", step=5)
"""Rank 0 stands in the fifth step, whose samples it asks for; the other rank waits for it in a collective."""
IN_SAVE = Act(name="in-save", place="save", step=6)
"""The files of step 6 are on the disk, and rank 0 has not declared them complete."""
ANSWER_S = 5.0
"""How long a launcher on a busy machine may take to look at its signals."""
LONGEST_MOMENT_S = 0.3
"""About two steps on a slow machine: a signal within it may come anywhere in a step."""

Whom = Callable[[Scene], list[int]]


def one_rank(scene: Scene) -> list[int]:
    return [scene.rank(1)]


def saving_rank(scene: Scene) -> list[int]:
    return [scene.rank(0)]


def all_ranks(scene: Scene) -> list[int]:
    return [scene.rank(0), scene.rank(1)]


def agent(scene: Scene) -> list[int]:
    return [scene.agent]


def server(scene: Scene) -> list[int]:
    return [scene.server]


def launcher(scene: Scene) -> list[int]:
    return [scene.launcher]


def send(number: signal.Signals, whom: Whom, act: Act) -> Callable[[Scene], None]:
    """Return a fault: a signal to some processes while a rank waits at the place of `act`, which then goes on."""

    def inject(scene: Scene) -> None:
        scene.wait_for(act.name)
        for pid in whom(scene):
            os.kill(pid, number)
        if whom is launcher:
            # Only then are the ranks told, and the last steps take less time than the launcher's next look.
            _await_answer(scene)
        scene.release(act.name)

    return inject


def _await_answer(scene: Scene) -> None:
    """Wait until the launcher has answered a signal; where nobody reads what it prints, for as long as it may take."""
    end = time.monotonic() + ANSWER_S
    while "stopping after this step" not in scene.printed and time.monotonic() < end:
        time.sleep(0.01)


def kill(whom: Whom, act: Act = IN_STEP) -> Callable[[Scene], None]:
    """Return a fault: SIGKILL to some processes; the rank at the place of `act` never gets on."""

    def inject(scene: Scene) -> None:
        scene.wait_for(act.name)
        for pid in whom(scene):
            os.kill(pid, signal.SIGKILL)

    return inject


def terminate(act: Act) -> Callable[[Scene], None]:
    """Return a fault: SIGTERM to the launcher."""
    return send(signal.SIGTERM, launcher, act)


def terminate_at_random(scene: Scene) -> None:
    """Send SIGTERM to the launcher at a moment that is new each time."""
    scene.wait_for(IN_STEP.name)
    scene.release(IN_STEP.name)
    time.sleep(random.uniform(0, LONGEST_MOMENT_S))
    os.kill(scene.launcher, signal.SIGTERM)


def interrupt_twice(scene: Scene) -> None:
    """Press Ctrl-C, see what it says, and press it again while a rank still is in its step."""
    scene.wait_for(IN_STEP.name)
    os.kill(scene.launcher, signal.SIGINT)
    scene.until(lambda: "Ctrl-C again" in scene.printed, "the first Ctrl-C is answered")
    os.kill(scene.launcher, signal.SIGINT)


def start_again(scene: Scene) -> Typed:
    """Type the same command while the first one is at work."""
    scene.wait_for(IN_STEP.name)
    second = scene.type().wait()
    scene.release(IN_STEP.name)
    return second


def set_clock_back(scene: Scene) -> None:
    """Set the clock back by an hour in a step, and kill a rank after the next save.

    The hour that the clock was ahead also stands in what the file system noted of the files so far.
    """
    scene.wait_for(IN_STEP.name)
    for path in scene.paths.root.rglob("*"):
        noted = path.stat().st_mtime + AHEAD_S
        os.utime(path, (noted, noted))
    (scene.folder / "clock").touch()
    scene.release(IN_STEP.name)
    kill(one_rank, LATER)(scene)


AHEAD_S = 3600
LATER = Act(name="later", place="data", step=8)


def clock_ahead(scene: Scene) -> None:
    """Let the clock be an hour ahead until it is set back."""
    scene.variables["DRILL_CLOCK"] = str(scene.folder / "clock")


def take_port(scene: Scene) -> None:
    """Listen on a port, and name it to the run as the one to meet at."""
    taken = scene.undo.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    scene.variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}


def join_at_taken_port(scene: Scene) -> None:
    """Let the command be the first of two processes that an outer launcher started, with a port that is taken."""
    take_port(scene)
    scene.variables |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


def second_process(scene: Scene) -> None:
    """Start the second process, and end it when the first one has failed, as srun does."""
    other = scene.type(more={"RANK": "1", "LOCAL_RANK": "1"})
    if scene.command is not None:
        scene.command.wait()
    other.process.terminate()
    other.wait()


def alone_again(scene: Scene) -> None:
    """Let nobody have started the command but the user."""
    scene.variables.clear()
