"""How an attempt ended, judged from what its ranks left behind. Pure: no process is looked at here.

What a rank says of itself counts first; its exit code only where it said nothing. A rank that said nothing has failed.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from primus_hydra.errors import ExitCode
from primus_hydra.launch.hang import Hang
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.outcome import Outcome

Ended = Literal["by itself", "at once", "after the grace", "with another node"]
"""Whether the launcher had to kill: after a second SIGINT, at the end of the grace, or for another node's sake."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known when no rank runs any more.

    `exit_codes` are Popen's (negative for a signal) of ranks where known, `own_exit_code` that of the process that the
    launcher started. `lost` is the first rank seen dead without an outcome, `lost_with` are those seen dead at the same
    look. `unnamed` are ranks of torch's agent that ended before they named themselves and opened their logs. `signal`
    is the first one the launcher got. `hang` was found in the last start of the ranks; `refusal` says why the agent did
    not restart them once more; `elsewhere` is what happened on another node of the job.
    """

    ranks: Sequence[int]
    outcomes: Mapping[int, Outcome]
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    own_exit_code: int = 0
    lost: int | None = None
    lost_with: tuple[int, ...] = ()
    unnamed: frozenset[int] = frozenset()
    signal: int | None = None
    ended: Ended = "by itself"
    grace_s: float = 0.0
    joined: bool = False
    restarts: int = 0
    hang: Hang | None = None
    refusal: str | None = None
    elsewhere: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchResult:
    """The end of an attempt; `exit_code` is the command's, `log` is where to read more.

    `followed` says that these ranks were ended because of another node's.
    """

    exit_code: int
    message: str
    outcomes: tuple[Outcome, ...] = ()
    failed_rank: int | None = None
    log: Path | None = None
    restarts: int = 0
    signal: int | None = None
    followed: bool = False

    @property
    def step(self) -> int | None:
        """The last step that a rank spoke of."""
        return max((outcome.step for outcome in self.outcomes if outcome.step is not None), default=None)


def judge(evidence: Evidence, paths: RunPaths) -> LaunchResult:
    """Turn evidence into the result of the launch."""
    outcomes = tuple(evidence.outcomes[rank] for rank in sorted(evidence.outcomes))
    good = [outcome for outcome in outcomes if outcome.good and outcome.rank in evidence.ranks]
    failed_rank, log = None, None
    if len(good) == len(evidence.ranks):
        code, message = _good_end(evidence, good)
    elif evidence.ended != "by itself":
        code, message = _killed(evidence)
    elif evidence.hang is not None:
        failed_rank = evidence.hang.stuck[0]
        code, message, log = ExitCode.HANG, evidence.hang.describe(), paths.rank_log(failed_rank)
    else:
        failed_rank = _culprit(evidence)
        code, message = _failure(evidence, failed_rank)
        log = _log_of(failed_rank, evidence, paths)
    if evidence.refusal:
        message += f"; not restarted again: {evidence.refusal}"
    return LaunchResult(
        exit_code=code,
        message=message,
        outcomes=outcomes,
        failed_rank=failed_rank,
        log=log,
        restarts=evidence.restarts,
        signal=evidence.signal,
        followed=evidence.ended == "with another node" and len(good) < len(evidence.ranks),
    )


def _log_of(rank: int | None, evidence: Evidence, paths: RunPaths) -> Path:
    # In its own log a rank that did not come so far as to name itself has only words of an attempt before.
    return paths.agent_log if rank is None or rank in evidence.unnamed else paths.rank_log(rank)


def as_exit_code(code: int) -> int:
    """Turn Popen's code into a shell's: 128+n for a signal."""
    return 128 - code if code < 0 else code


def _good_end(evidence: Evidence, outcomes: Sequence[Outcome]) -> tuple[int, str]:
    step = next((outcome.step for outcome in outcomes if outcome.step is not None), None)
    if any(outcome.status == "stopped" for outcome in outcomes):
        interrupted = evidence.signal == signal.SIGINT and not evidence.joined
        return ExitCode.INTERRUPTED if interrupted else ExitCode.REQUEUE, f"stopped and saved at step {step}"
    # A process may die at the interpreter's exit, after its work: worth a word, not a failure.
    late = {rank: code for rank, code in evidence.exit_codes.items() if code}
    note = "".join(f"; rank {rank} {_death(code)} after its work was done" for rank, code in late.items())
    return ExitCode.DONE, f"finished at step {step}{note}"


def _killed(evidence: Evidence) -> tuple[int, str]:
    if evidence.ended == "with another node":
        return 1, f"ended with the job: {evidence.elsewhere}"
    if evidence.ended == "at once":
        return ExitCode.INTERRUPTED, "stopped at once; nothing was saved at this stop"
    number = evidence.signal or signal.SIGTERM
    message = f"killed {evidence.grace_s:g} s after {signal.Signals(number).name}: the ranks had not saved by then"
    return 128 + number, message + " (launch.stop_grace_s)"


def _culprit(evidence: Evidence) -> int | None:
    """Name the rank that failed first: others usually fail because of it, in their next collective."""
    silent = [rank for rank in evidence.ranks if rank not in evidence.outcomes]
    known = [rank for rank in silent if evidence.exit_codes.get(rank)]
    if evidence.lost is not None and evidence.lost not in evidence.outcomes:
        # An agent that was killed takes its ranks with it, and one of them may have been seen dead before it.
        if evidence.own_exit_code < 0 and evidence.lost not in evidence.exit_codes:
            return None
        # The agent ends the others within milliseconds: the launcher may see them all dead at once, the agent cannot.
        # A rank that died later died of the first one's absence, also where only its own code is known.
        first = [evidence.lost, *evidence.lost_with]
        return next((rank for rank in first if rank in known), evidence.lost)
    failed = [outcome for outcome in evidence.outcomes.values() if not outcome.good]
    if failed:
        return min(failed, key=lambda outcome: outcome.time).rank
    left_quietly = silent if evidence.own_exit_code == 0 or len(evidence.ranks) == 1 else []
    return next(iter(known or left_quietly), None)


def _failure(evidence: Evidence, rank: int | None) -> tuple[int, str]:
    outcome = evidence.outcomes.get(rank) if rank is not None else None
    if outcome is not None:
        text = outcome.message or "failed without a message"
        mendable = outcome.exit_code in (ExitCode.USER, ExitCode.HOST)
        return outcome.exit_code or 1, text if mendable else f"rank {rank} failed: {text}"
    if rank is None:
        return as_exit_code(
            evidence.own_exit_code
        ), f"torch's agent {_death(evidence.own_exit_code)}, its ranks with it"
    code = evidence.exit_codes.get(rank, 0)
    return as_exit_code(code) or 1, f"rank {rank} {_death(code)} without a word"


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL (often: out of memory)"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
