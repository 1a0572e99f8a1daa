"""Runs the hooks of one attempt on one node, phase by phase, and keeps the record of it.

Before the ranks the first hook that fails ends its phase; after them each hook gets its turn, whatever became of the
others. What hooks set is known to the later ones; a hook that fails sets nothing.
"""

from __future__ import annotations

import json
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from primus_hydra.errors import ExitCode, Problem
from primus_hydra.hooks.context import HookContext, Outcome
from primus_hydra.hooks.entry import Hook, Phase, is_shell_file
from primus_hydra.hooks.exchange import Exchange
from primus_hydra.hooks.process import Ended, Stops, run_process
from primus_hydra.hooks.record import HookEnd, Result, write_record
from primus_hydra.hooks.values import Collector, HookValues
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.reserved import EXTRA_VARIABLE

SKIPPED = 2
"""Exit code of a script that has nothing to do."""
TIMED_OUT = 124
"""Exit code of a launch whose hook took too long, as that of timeout(1)."""
TAIL_LINES = 20

_TIED_MODULE = "primus_hydra.hooks.tied"


@dataclass(frozen=True, kw_only=True)
class PhaseEnd:
    """The end of a phase: what it set, what is set after it, its failed hooks, and the signal that stopped it."""

    set: HookValues
    values: HookValues
    failed: tuple[HookEnd, ...] = ()
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """The command's exit code if this phase stopped the launch, else 0."""
        if self.signal is not None:
            return int(ExitCode.INTERRUPTED if self.signal == signal.SIGINT else ExitCode.REQUEUE)
        return self.failed[0].code if self.failed else int(ExitCode.DONE)


class HookRunner:
    """The hooks of an attempt on node number `node`.

    `environment` is what hooks inherit, `python` the interpreter's command, `say` is told each end in a line and
    `status` what runs now.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        *,
        paths: RunPaths,
        attempt: int,
        environment: Mapping[str, str],
        job_environment: Mapping[str, str],
        python: Sequence[str],
        node: int = 0,
        nodes: int = 1,
        say: Callable[[str], None] = lambda _: None,
        status: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._hooks = tuple(hooks)
        self._paths = paths
        self._attempt = attempt
        self._environment = environment
        self._job_environment = job_environment
        self._python = tuple(python)
        self._node = node
        self._nodes = nodes
        self._say = say
        self._status = status
        self._ends: list[HookEnd] = []
        self._set: dict[str, HookValues] = {}

    def run(self, phase: Phase, values: HookValues | None = None, outcome: Outcome | None = None) -> PhaseEnd:
        """Run the hooks of a phase with the values that are set already; raises OSError if nothing can be written."""
        before = values or HookValues()
        hooks = [hook for hook in self._hooks if hook.phase == phase]
        if not hooks:
            return PhaseEnd(set=HookValues(), values=before)
        self._paths.logs.mkdir(parents=True, exist_ok=True)
        with Stops.listening() as stops, self._paths.hooks_log(self._node).open("ab") as log:
            return self._run(hooks, before, outcome, stops, log)

    def _run(
        self, hooks: Sequence[Hook], before: HookValues, outcome: Outcome | None, stops: Stops, log: IO[bytes]
    ) -> PhaseEnd:
        newly, failed = HookValues(), list[HookEnd]()
        for hook in hooks:
            self._status(f"{hook.phase} hook {hook.name}")
            end, said = _OneRun(self, hook, before.merged(newly), outcome, stops, log).run()
            newly = newly.merged(said)
            self._ends.append(end)
            self._note(hook.phase, newly)
            self._say(end.describe())
            failed += [] if end.good else [end]
            if stops.first is not None or (failed and hook.phase != "post_train"):
                break
        return PhaseEnd(set=newly, values=before.merged(newly), failed=tuple(failed), signal=stops.first)

    def _note(self, phase: Phase, newly: HookValues) -> None:
        self._set[phase] = newly
        write_record(self._paths.attempt(self._attempt).hooks(self._node), self._ends, self._set)

    def context(self, hook: Hook, outcome: Outcome | None) -> HookContext:
        """Return what a hook is told."""
        return HookContext(
            phase=hook.phase,
            name=hook.name,
            run_dir=self._paths.root,
            attempt=self._attempt,
            node=self._node,
            nodes=self._nodes,
            outcome=outcome,
        )

    def environment(self, hook: Hook, values: HookValues, outcome: Outcome | None) -> dict[str, str]:
        """Return a hook's environment: the caller's, what earlier hooks set, the job's `env`, and where it stands."""
        told = self.context(hook, outcome).variables()
        extra = {EXTRA_VARIABLE: json.dumps(values.extra, ensure_ascii=False)} if values.extra else {}
        return {**self._environment, **values.environment, **self._job_environment, **extra, **told}

    def argv(self, *words: str) -> list[str]:
        """Return a command of this interpreter's."""
        return [*self._python, *words]


class _OneRun:
    """One hook in one phase."""

    def __init__(
        self,
        runner: HookRunner,
        hook: Hook,
        values: HookValues,
        outcome: Outcome | None,
        stops: Stops,
        log: IO[bytes],
    ) -> None:
        self._runner = runner
        self._hook = hook
        self._environment = runner.environment(hook, values, outcome)
        self._stops = stops
        self._log = log
        self._collector = Collector(hook.name)
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def run(self) -> tuple[HookEnd, HookValues]:
        """Run it; a hook that failed sets nothing."""
        end, values = self._run_script() if self._hook.target is None else self._run_function(self._hook.target)
        if not end.good:
            return replace(end, tail=tuple(self._tail)), HookValues()
        return replace(end, set=tuple(values.environment)), values

    def _run_script(self) -> tuple[HookEnd, HookValues]:
        command = _command(self._hook.script or Path(), self._hook.args)
        ended = self._process(self._runner.argv("-m", _TIED_MODULE, *command))
        if ended.code == SKIPPED and not _cut_short(ended):
            return self._end(ended, "skipped"), HookValues()
        return self._judged(ended, self._collector.problems), self._collector.values

    def _run_function(self, target: Mapping[str, Any]) -> tuple[HookEnd, HookValues]:
        with Exchange("run", dict(target)) as exchange:
            ended = self._process(self._runner.argv(*exchange.arguments), keep_open=exchange.descriptors)
            reply = exchange.reply() or {}
        if "skipped" in reply or (not reply and ended.code == SKIPPED and not _cut_short(ended)):
            return self._end(ended, "skipped", message=str(reply.get("skipped", ""))), HookValues()
        if "failed" in reply and not _cut_short(ended):
            return self._end(ended, "failed", code=int(reply["code"]), message=str(reply["failed"])), HookValues()
        values = HookValues.from_json(reply["values"]) if "values" in reply else HookValues()
        return self._judged(ended, [Problem(**problem) for problem in reply.get("problems", ())]), values

    def _process(self, argv: Sequence[str], keep_open: Sequence[int] = ()) -> Ended:
        return run_process(
            argv,
            environment=self._environment,
            timeout_s=self._hook.timeout_s,
            stops=self._stops,
            on_line=self._line,
            keep_open=keep_open,
        )

    def _line(self, stream: str, line: bytes) -> None:
        if stream == "out" and self._hook.target is None and self._collector.line(line):
            return
        self._tail.append(_text(line))
        self._log.write(b"[" + self._hook.name.encode() + b"] " + line + b"\n")
        self._log.flush()

    def _judged(self, ended: Ended, problems: Sequence[Problem]) -> HookEnd:
        """Judge an end that is neither skipped nor told in the hook's own words."""
        if ended.stopped_by is not None:
            return self._end(ended, "stopped", message=signal.Signals(ended.stopped_by).name)
        if ended.timed_out:
            message = f"it took longer than {self._hook.timeout_s:g} s"
            return self._end(ended, "timed out", code=TIMED_OUT, message=message)
        if ended.code < 0:
            name = signal.Signals(-ended.code).name
            return self._end(ended, "failed", code=128 - ended.code, message=f"it was killed by {name}")
        if ended.code:
            return self._end(ended, "failed", code=ended.code, message=f"exit code {ended.code}")
        if problems:
            message = "; ".join(
                f"{problem.key}: {problem.what}" if problem.key else problem.what for problem in problems
            )
            return self._end(ended, "failed", code=int(ExitCode.USER), message=message)
        return self._end(ended, "done")

    def _end(self, ended: Ended, result: Result, *, code: int = 0, message: str = "") -> HookEnd:
        return HookEnd(
            phase=self._hook.phase,
            name=self._hook.name,
            result=result,
            seconds=round(ended.seconds, 3),
            code=code,
            message=message,
        )


def _command(script: Path, args: Sequence[str]) -> list[str]:
    by_bash = is_shell_file(script) and not os.access(script, os.X_OK)
    return [*(["bash"] if by_bash else []), str(script), *args]


def _cut_short(ended: Ended) -> bool:
    return ended.timed_out or ended.stopped_by is not None


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
