"""Starts the ranks of one attempt on this machine, passes on what the user asks for, and says how it ended.

The launcher alone decides what a signal means: SIGTERM and SIGUSR2 (a scheduler), or the first SIGINT (a person), tell
every rank once to finish its step and save; a second SIGINT, or the end of the grace, kills. Nothing that it started
outlives it. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Protocol

from primus_hydra.errors import ExitCode
from primus_hydra.launch.containment import ContainedProcess, as_process_code
from primus_hydra.launch.elsewhere import Elsewhere
from primus_hydra.launch.plan import LaunchPlan
from primus_hydra.launch.supervision import Supervisor, clear_pulses
from primus_hydra.launch.verdict import Ended, Evidence, LaunchResult, judge
from primus_hydra.launch.watch import RankWatch, end_session
from primus_hydra.run.atomic import read_json
from primus_hydra.runtime.signals import STOP_SIGNALS, holding_stops
from primus_hydra.runtime.tether import PARENT_VARIABLE

TICK_S = 0.1
STRAGGLER_S = 1.0
"""How long the others may go on after a rank died: they fail too, or hang in a collective that never ends."""
STRAGGLER_AFTER_ERROR_S = 5.0
"""The same after a rank that said why it failed: others may have something to say too."""

_OF_ANOTHER_LAUNCH = frozenset(
    f"TORCHELASTIC_{name}" for name in ("RESTART_COUNT", "MAX_RESTARTS", "RUN_ID", "USE_AGENT_STORE", "ERROR_FILE")
)


class View(Protocol):
    """What shows the user how the attempt goes on."""

    def tick(self) -> None:
        """Look for news; called about ten times a second while ranks run."""

    def say(self, text: str) -> None:
        """Show a line: what became of a signal."""


class NoView:
    """Shows nothing."""

    def tick(self) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""


def launch(
    plan: LaunchPlan,
    view: View | None = None,
    published: Callable[[Path], None] | None = None,
    elsewhere: Elsewhere | None = None,
) -> LaunchResult:
    """Run the attempt to its end, or this node's part of it.

    The resolved configuration must be in the run directory, and on all nodes but the first the spec. `published` is
    told the path of the attempt's spec before the ranks start (other ranks and nodes wait for it); `elsewhere` are
    other nodes, because of which the ranks here may have to end. An error of the view, or any other, ends the ranks
    before it passes on.
    """
    _prepare(plan)
    spec_path = plan.spec.write() if plan.node == 0 else plan.spec.attempt_paths.spec
    if published is not None:
        published(spec_path)
    with _Stops.listening(ignore_later=plan.spec.joined or plan.spec.layout.nodes > 1) as stops:
        return _Attempt(plan, stops, elsewhere).run(view or NoView())


class _Stops:
    """The signals that this process got while ranks run."""

    def __init__(self) -> None:
        self.received: list[int] = []

    @property
    def first(self) -> int | None:
        return self.received[0] if self.received else None

    @property
    def at_once(self) -> bool:
        return self.received.count(signal.SIGINT) > 1

    def note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if number == signal.SIGHUP:
            _leave_terminal()

    @classmethod
    @contextlib.contextmanager
    def listening(cls, *, ignore_later: bool) -> Iterator[_Stops]:
        """Take note of signals.

        `ignore_later` leaves them ignored: an outer launcher sends SIGTERM to all as soon as the first process ends,
        and what the caller does after the ranks' end must not be cut off. (Ignored, not handled: Python takes its
        handlers back before it has ended, and the default would change our exit code.)
        """
        stops = cls()
        if threading.current_thread() is not threading.main_thread():
            yield stops  # Python lets only the main thread set handlers: then the caller's decide
            return
        # Under nohup a hang-up is ignored, and stays so.
        heard = [number for number in (*STOP_SIGNALS, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, stops.note) for number in heard}
        try:
            yield stops
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if ignore_later else handler)


class _Attempt:
    """The one process that we start, and the ranks below it."""

    def __init__(self, plan: LaunchPlan, stops: _Stops, others: Elsewhere | None) -> None:
        self._plan = plan
        self._others = others
        self._elsewhere: str | None = None
        self._spec = plan.spec
        self._stops = stops
        self._ranks = [RankWatch(rank, plan.spec.attempt_paths) for rank in plan.watched]
        tell = None if others is None or plan.spec.layout.nodes == 1 else others.tell_hang
        self._supervisor = Supervisor(plan.spec, plan.timeouts, self._ranks, tell=tell)
        self._lost: RankWatch | None = None
        self._lost_pid: int | None = None
        self._lost_with: tuple[int, ...] = ()
        self._stragglers: list[RankWatch] = []
        self._lost_restart = 0
        self._patience_ends = float("inf")
        self._grace_ends = float("inf")
        self._ended: Ended = "by itself"
        self._told_user = False
        self._container = ContainedProcess(plan.container) if plan.container is not None else None

    def run(self, view: View) -> LaunchResult:
        process = _start(self._plan, self._container)
        try:
            while process.poll() is None and self._go_on(view):
                view.tick()
                time.sleep(TICK_S)
        finally:
            self._end(process)
            self._supervisor.close()
        view.tick()
        return self._never_began(process.returncode) or judge(self._evidence(process), self._spec.paths)

    def _never_began(self, code: int) -> LaunchResult | None:
        failure = self._container.failure(code) if self._container is not None and self._ended == "by itself" else None
        if failure is None or self._stops.first is not None:
            return None
        return LaunchResult(exit_code=ExitCode.HOST, message=failure, log=_log(self._plan))

    def _go_on(self, view: View) -> bool:
        """Do what is due at this moment; False when everything has to end now."""
        for rank in self._ranks:
            rank.look()
        self._watch_failures()
        self._watch_hang(view)
        if self._stops.first is not None and not self._told_user:
            self._told_user = True
            view.say(_stop_notice(self._stops.first, self._spec.stop_grace_s))
        return self._obey_signals() and not self._other_nodes_ended()

    def _other_nodes_ended(self) -> bool:
        self._elsewhere = self._others.news() if self._others is not None else None
        if self._elsewhere is not None:
            self._ended = "with another node"
        return self._elsewhere is not None

    def _obey_signals(self) -> bool:
        now = time.monotonic()
        if self._stops.first is None:
            return True
        self._grace_ends = min(self._grace_ends, now + self._spec.stop_grace_s)
        # Under an outer launcher a Ctrl-C comes twice, from the terminal and from it; it kills by itself when it must.
        if self._stops.at_once and not self._spec.joined:
            self._ended = "at once"
        elif now > self._grace_ends:
            self._ended = "after the grace"
        for rank in self._ranks:
            rank.tell(signal.SIGTERM)
        return self._ended == "by itself"

    def _watch_failures(self) -> None:
        if self._lost is not None and self._lost.pid != self._lost_pid:
            self._forgive()
        if self._patience_ends == float("inf"):
            self._notice_failure()
        elif time.monotonic() > self._patience_ends:
            for rank in self._stragglers:
                if rank.restarts == self._lost_restart:
                    rank.kill()
            self._stragglers = []

    def _watch_hang(self, view: View) -> None:
        found_elsewhere = self._others.hung() if self._others is not None else None
        if found_elsewhere is not None:
            self._supervisor.witness(found_elsewhere)
        hang = self._supervisor.look()
        if hang is None:
            return
        view.say(f"hang: {hang.describe()}; stacks of all ranks: {self._spec.attempt_paths.stacks(0).parent}")
        for rank in self._ranks:
            if rank.restarts == self._supervisor.hung_restart:
                rank.kill()

    def _notice_failure(self) -> None:
        # After a restart, a rank that has not named itself anew still shows the end of the process before.
        newest = max(rank.restarts for rank in self._ranks)
        current = [rank for rank in self._ranks if rank.restarts == newest]
        lost = [rank for rank in current if rank.is_lost()]
        first = lost[0] if lost else next((rank for rank in current if (said := rank.outcome) and not said.good), None)
        if first is None:
            return
        self._lost, self._lost_pid = first, first.pid
        self._lost_with = tuple(rank.rank for rank in lost[1:])
        self._patience_ends = time.monotonic() + (STRAGGLER_S if lost else STRAGGLER_AFTER_ERROR_S)
        # Also one that has not named itself yet: it would wait for the lost one.
        self._stragglers, self._lost_restart = [rank for rank in self._ranks if rank is not first], newest

    def _forgive(self) -> None:
        """The agent has restarted the ranks."""
        self._lost, self._lost_pid, self._stragglers, self._patience_ends = None, None, [], float("inf")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        killed = process.poll() is None
        if killed:
            process.kill()
        process.wait()
        for rank in self._ranks:
            rank.look()
            if rank.pid is not None:
                end_session(rank.pid)
        end_session(process.pid)
        if self._container is not None:
            self._container.end(process, killed=killed)

    def _evidence(self, process: subprocess.Popen[bytes]) -> Evidence:
        said = [outcome for rank in self._ranks if (outcome := rank.outcome)]
        newest = max((outcome.restart for outcome in said), default=0)
        outcomes = {outcome.rank: outcome for outcome in said if outcome.restart == newest}
        newest_restart = max((rank.restarts for rank in self._ranks), default=0)
        code = process.returncode if self._container is None else as_process_code(process.returncode)
        lost = self._lost.rank if self._lost and self._lost.rank not in outcomes else None
        return Evidence(
            ranks=self._plan.watched,
            outcomes=outcomes,
            exit_codes=self._exit_codes(code),
            own_exit_code=code,
            lost=lost,
            lost_with=self._lost_with,
            unnamed=frozenset(rank.rank for rank in self._ranks if not rank.named and self._plan.how == "agent"),
            signal=self._stops.first,
            ended=self._ended,
            grace_s=self._spec.stop_grace_s,
            joined=self._spec.joined,
            restarts=newest_restart,
            hang=self._supervisor.hang if self._supervisor.hung_restart == newest_restart else None,
            refusal=self._refusal(),
            elsewhere=self._elsewhere,
        )

    def _refusal(self) -> str | None:
        said = (read_json(self._agent_file) or {}) if self._plan.how == "agent" else {}
        refusal = said.get("refusal")
        return str(refusal) if refusal else None

    @property
    def _agent_file(self) -> Path:
        return self._spec.attempt_paths.agent(self._plan.node)

    def _exit_codes(self, own: int) -> Mapping[int, int]:
        if self._plan.how != "agent":
            return {self._plan.watched[0]: own}
        said = read_json(self._agent_file) or {}
        codes = said.get("exit_codes")
        return {int(rank): int(code) for rank, code in codes.items()} if isinstance(codes, dict) else {}


def _stop_notice(number: int, grace_s: float) -> str:
    more = "; Ctrl-C again stops at once, without saving" if number == signal.SIGINT else ""
    return f"{signal.Signals(number).name}: stopping after this step, with a save (at most {grace_s:g} s){more}"


def _leave_terminal() -> None:
    """The terminal is gone: what is printed from now on goes nowhere, instead of failing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if os.isatty(stream):
            os.dup2(nowhere, stream)
    os.close(nowhere)


def _prepare(plan: LaunchPlan) -> None:
    attempt = plan.spec.attempt_paths
    for left in (attempt.outcome(0).parent, attempt.pid(0).parent) if plan.node == 0 else ():
        # Left by an attempt of the same number that died before it was counted.
        shutil.rmtree(left, ignore_errors=True)
        left.mkdir(parents=True)
    attempt.agent(plan.node).unlink(missing_ok=True)
    clear_pulses(plan.spec)
    attempt.errors.mkdir(parents=True, exist_ok=True)
    plan.spec.paths.logs.mkdir(parents=True, exist_ok=True)


def _log(plan: LaunchPlan) -> Path:
    paths = plan.spec.paths
    return paths.agent_log_of(plan.node) if plan.how == "agent" else paths.rank_log(plan.watched[0])


def _start(plan: LaunchPlan, container: ContainedProcess | None) -> subprocess.Popen[bytes]:
    if container is not None:
        return container.start(plan.variables(), _log(plan))
    environment = {
        name: value for name, value in os.environ.items() if plan.spec.joined or name not in _OF_ANOTHER_LAUNCH
    }
    environment |= plan.variables() | {PARENT_VARIABLE: str(os.getpid())}
    with _log(plan).open("ab") as output, holding_stops():
        return subprocess.Popen(
            plan.argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
