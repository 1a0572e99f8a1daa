"""torch's elastic agent on this node, in a process of its own: `python -m primus_hydra.launch.agent SPEC`.

The agent starts the ranks, restarts all of them when one dies, and gives every start a fresh rendezvous. It handles no
signals: the launcher decides what a signal means and tells the ranks itself.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from primus_hydra.launch.fork_server import ForkServer
from primus_hydra.launch.outer import python_argv
from primus_hydra.launch.plan import RANK_MODULE
from primus_hydra.launch.restarts import Decision, Failure, RestartPolicy
from primus_hydra.run.atomic import write_json
from primus_hydra.runtime.outcome import Outcome, read_outcome
from primus_hydra.runtime.pulse import read_beat
from primus_hydra.runtime.rank import enter
from primus_hydra.runtime.signals import STOP_SIGNALS
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent

PRELOAD_LIMIT_S = 600.0
"""How long the fork server may import; a shared file system at the start of a large job is slow."""


def main(argv: Sequence[str]) -> int:
    """Run the ranks of one attempt; returns 0 if every rank exited with 0, else 1."""
    die_with_parent()
    for number in STOP_SIGNALS:
        # Not SIG_IGN, which the ranks would inherit.
        signal.signal(number, lambda *_: None)
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    spec_path = Path(argv[0])
    return run_ranks(AttemptSpec.read(spec_path), spec_path)


def run_ranks(spec: AttemptSpec, spec_path: Path) -> int:
    """Let torch start and watch the ranks; leave the exit codes of the failed ones for the launcher."""
    server = ForkServer.start(spec_path) if spec.start == "fork_server" else None
    from primus_hydra.launch.elastic import run_group

    policy = RestartPolicy(spec.backoff_s)
    decide = functools.partial(_decide, spec, policy)
    if server is not None and _is_fit(server):
        codes, refusal = run_group(spec, enter, (str(spec_path),), start_method="forkserver", decide=decide)
    else:
        argv = [*python_argv(), "-m", RANK_MODULE, str(spec_path)]
        codes, refusal = run_group(spec, argv[0], tuple(argv[1:]), start_method="spawn", decide=decide)
    if codes or refusal:
        said = {"exit_codes": {str(rank): code for rank, code in codes.items()}, "refusal": refusal}
        write_json(spec.attempt_paths.agent, said)
    return int(bool(codes or refusal))


def _decide(spec: AttemptSpec, policy: RestartPolicy) -> Decision:
    """Judge the latest failure by what its ranks finished and said."""
    ranks = range(spec.world_size)
    beats = [read_beat(spec.pulse(rank)) for rank in ranks]
    outcomes = [read_outcome(spec.attempt_paths.outcome(rank)) for rank in ranks]
    step = max((beat.step for beat in beats if beat is not None), default=-1)
    return policy.after(Failure(step=step, said=_words(outcomes)))


def _words(outcomes: Sequence[Outcome | None]) -> str:
    """Return what the failure said, without numbers that are new each time; a silent death is the cause of others."""
    if None in outcomes:
        return "a rank died without a word"
    failed = [outcome for outcome in outcomes if outcome is not None and not outcome.good]
    first = min(failed, key=lambda outcome: outcome.time, default=None)
    return re.sub(r"\d+", "#", first.message or "") if first else ""


def _is_fit(server: ForkServer) -> bool:
    reason = server.unfit(PRELOAD_LIMIT_S)
    if reason is None:
        return True
    print(
        f"each rank starts a Python of its own, since the fork server is unfit: {reason}", file=sys.stderr, flush=True
    )
    server.stop()
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
