"""What a failed start of the ranks has left, as the policy of restarts judges it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from primus_hydra.launch.restarts import Decision, Failure, RestartPolicy
from primus_hydra.launch.watch import read_pid
from primus_hydra.runtime.outcome import Outcome, read_outcome
from primus_hydra.runtime.pulse import read_beat
from primus_hydra.runtime.spec import AttemptSpec


def decide(spec: AttemptSpec, policy: RestartPolicy, restart: int) -> Decision:
    """Judge the failure of a start by what its ranks finished and said; what an earlier start left says nothing."""
    ranks = range(spec.world_size)
    outcomes = [read_outcome(spec.attempt_paths.outcome(rank)) for rank in ranks]
    said = [outcome if outcome is not None and outcome.restart == restart else None for outcome in outcomes]
    step = max(_finished(spec, rank, restart) for rank in ranks)
    return policy.after(Failure(step=step, said=_words(said)))


def _finished(spec: AttemptSpec, rank: int, restart: int) -> int:
    """Return the last step that a rank finished in this start, -1 if it finished none."""
    beat = read_beat(spec.pulse(rank))
    current = beat is not None and read_pid(spec.attempt_paths, rank) == (beat.pid, restart)
    return beat.step if beat is not None and current else -1


def _words(outcomes: Sequence[Outcome | None]) -> str:
    """Return what the failure said, without numbers that are new each time; a silent death is the cause of others."""
    if None in outcomes:
        return "a rank died without a word"
    failed = [outcome for outcome in outcomes if outcome is not None and not outcome.good]
    first = min(failed, key=lambda outcome: outcome.time, default=None)
    return re.sub(r"\d+", "#", first.message or "") if first else ""
