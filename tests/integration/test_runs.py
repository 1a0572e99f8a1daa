"""A run that is followed, stopped, looked at and gone on with from other terminals, as `task=runs` does it.

The ranks are the toy's, which need no torch; the rest is the command that users type.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from primus_hydra.run.metrics import newest_rows, read_metrics, step_of
from primus_hydra.run.overview import RunOverview, overview_of
from tests.integration.command import TIMEOUT_S, Command, Ended
from tests.integration.launching import toy_path

TOY = (
    "backend._target_=primus_toy.ToyAdapter",
    "backend.name=toy",
    "backend.config.step_s=0.05",
    "data=mock",
    "training.steps=100000",
)


class ToyCommand(Command):
    """The command with the toy installed beside it."""

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return an environment in which the toy is a package that declares itself."""
        return super().environment({"PYTHONPATH": os.pathsep.join(toy_path(self.folder.parent / "site"))})


def test_a_run_is_followed_stopped_looked_at_and_gone_on_with(tmp_path: Path) -> None:
    here, elsewhere = (ToyCommand(tmp_path / name) for name in ("here", "elsewhere"))
    for command in (here, elsewhere):
        command.folder.mkdir()
    run = here.start(*TOY, "run.name=mine")
    _wait_for_step(here, run, attempt=1)
    follower = subprocess.Popen(
        here.argv("task=runs", "task.run=mi", "task.action=follow", tiny=False),
        cwd=here.folder,
        env=here.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    first = follower.stdout.readline()
    stopped = _runs(here, "task.run=mine", "task.action=stop")
    followed, _ = follower.communicate(timeout=TIMEOUT_S)
    output, _ = run.communicate(timeout=TIMEOUT_S)

    assert (stopped.code, run.returncode, follower.returncode) == (0, 75, 0), stopped.output + output
    assert "mine: saved: stopped and saved at step" in stopped.output
    assert first.startswith("step ")
    assert "mine: saved" in followed
    before = _overview(here)
    assert (before.condition.word, before.attempts[0].word, before.attempts[0].exit_code) == ("saved", "saved", 75)
    assert [record.step for record in before.checkpoints if record.word == "complete"] == [before.step]

    resumed = subprocess.Popen(
        elsewhere.argv("task=runs", f"task.run={here.paths('mine').root}", "task.action=resume", tiny=False),
        cwd=elsewhere.folder,
        env=elsewhere.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    _wait_for_step(here, resumed, attempt=2)
    resumed.send_signal(signal.SIGTERM)
    output, _ = resumed.communicate(timeout=TIMEOUT_S)

    assert resumed.returncode == 75, output
    assert f"going on from the checkpoint at step {before.step}" in output
    after = _overview(here)
    assert [attempt.exit_code for attempt in after.attempts] == [75, 75]
    rows = read_metrics(here.paths("mine").metrics)
    assert [step_of(row) for row in rows] == list(range(1, (after.step or 0) + 1))
    assert not list(elsewhere.folder.iterdir())


def _wait_for_step(command: Command, run: subprocess.Popen[str], *, attempt: int) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not any(row["attempt"] == attempt for row in newest_rows(command.paths("mine").metrics, 1)):
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(command: Command, *options: str) -> Ended:
    return command.run("task=runs", *options, tiny=False)


def _overview(command: Command) -> RunOverview:
    return overview_of("mine", command.paths("mine").root)
