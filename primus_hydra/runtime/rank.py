"""The process of one rank: `python -m primus_hydra.runtime.rank SPEC`.

The order of its first moments matters. It ties its life to its parent, takes note of stop signals, exports the
environment, binds itself to its CPUs, and only then names itself and imports what is slow. Whatever happens afterwards
ends in an outcome file, from which the launcher makes the exit code of the command.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from primus_hydra.errors import ExitCode
from primus_hydra.runtime.affinity import Notice, bind_rank
from primus_hydra.runtime.distributed import RankNumbers, rank_numbers
from primus_hydra.runtime.logs import redirect_to
from primus_hydra.runtime.outcome import Outcome, failure
from primus_hydra.runtime.pulse import Pulse
from primus_hydra.runtime.signals import StopRequest
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.stages import Stages
from primus_hydra.runtime.stop import AgreedStop
from primus_hydra.runtime.tether import die_with_parent

_LOG = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run this rank; returns its exit code: 0 also after an agreed stop, or torch's agent would end the others."""
    die_with_parent()
    request = StopRequest()
    request.install()
    spec = AttemptSpec.read(Path(argv[0]))
    os.environ.update(spec.environment)
    numbers = rank_numbers(os.environ)
    stages = spec.stages(f"rank-{numbers.rank}", numbers.restart)
    stages.reached("started")
    bound = bind_rank(spec.cpus, numbers.local_rank)
    _announce(spec, numbers)
    outcome = _run(spec, numbers, request, bound, stages)
    outcome.write(spec.attempt_paths)
    if spec.joined and outcome.status == "stopped":
        return int(ExitCode.REQUEUE)
    return outcome.exit_code


def enter(spec_path: str) -> int:
    """Be a rank in a process that the fork server has forked; returns only after a good end, with 0.

    torch's agent counts the ranks that return; one that leaves with code 0 by itself would never be noticed.
    """
    os.setsid()
    code = main([spec_path])
    if code:
        leave(code)
    _flush()
    return code


def _announce(spec: AttemptSpec, numbers: RankNumbers) -> None:
    """Say who we are; from here on a stop can reach this rank, and what the process before it said is gone."""
    paths = spec.attempt_paths
    paths.outcome(numbers.rank).unlink(missing_ok=True)
    pid = paths.pid(numbers.rank)
    partial = pid.with_suffix(".new")
    partial.write_text(f"{os.getpid()} {numbers.restart}", encoding="ascii")
    partial.replace(pid)


def _run(
    spec: AttemptSpec, numbers: RankNumbers, request: StopRequest, bound: Notice | None, stages: Stages
) -> Outcome:
    step: int | None = None
    stderr = sys.stderr
    try:
        title = f"attempt {spec.attempt} restart {numbers.restart}"
        stderr = redirect_to(spec.paths.rank_log(numbers.rank), rank=numbers.rank, title=title).original_stderr
        if bound is not None:
            _LOG.log(bound.level, "%s", bound.text)
        # Only now: who sees a pulse may ask for a dump of the stacks, which the log takes.
        pulse = Pulse(spec.pulse(numbers.rank), stages.reached)
        from primus_hydra.config.build import load_job
        from primus_hydra.runtime.flow import LazySink, RankFlow, resume_step
        from primus_hydra.runtime.preload import preloaded
        from primus_hydra.runtime.trackers.opening import open_metrics

        server = preloaded(spec.attempt_paths.spec)
        job = server.adapter.job if server is not None and server.adapter is not None else load_job(spec.paths.config)
        begin = resume_step(spec, numbers.restart)
        sink = LazySink(
            lambda: open_metrics(job, spec.paths, attempt=spec.attempt, restart=numbers.restart, resume_from=begin)
        )
        stop = AgreedStop(request, numbers.world_size, pulse)
        flow = RankFlow(spec, job, numbers=numbers, stop=stop, metrics=sink, pulse=pulse, stages=stages)
        try:
            end = flow.run()
        finally:
            step = flow.step
        return Outcome(rank=numbers.rank, status=end.status, step=end.step, restart=numbers.restart)
    except BaseException as error:  # also SystemExit: a backend that leaves early has not finished
        outcome = failure(numbers.rank, error, step=step, restart=numbers.restart)
        _LOG.error("%s", outcome.traceback or outcome.message)
        if spec.joined:  # no launcher of ours shows it
            print(f"rank {numbers.rank}: {outcome.message}", file=stderr)
        return outcome


def leave(code: int) -> NoReturn:
    """End the process, after what must be flushed; skips the interpreter's teardown.

    Threads of native libraries that still run then can abort the process after its work is done.
    """
    _flush()
    os._exit(code)


def _flush() -> None:
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
