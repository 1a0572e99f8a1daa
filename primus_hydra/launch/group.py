"""The ranks of one attempt on this node, as the agent sees them: how they are started, and what is told of them.

Imported by the agent when the fork server is on its way, since torch is imported here as well.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from primus_hydra.launch.failures import decide as decide_restart
from primus_hydra.launch.fork_server import ForkServer
from primus_hydra.launch.outer import python_argv
from primus_hydra.launch.plan import RANK_MODULE
from primus_hydra.launch.restarts import RestartPolicy
from primus_hydra.run.atomic import write_json
from primus_hydra.runtime.rank import enter
from primus_hydra.runtime.spec import AttemptSpec, this_node

_LOG_FORMAT = "TORCH_LOGS_FORMAT"
PRELOAD_LIMIT_S = 600.0
"""How long the fork server may import; a shared file system at the start of a large job is slow."""


def run_ranks(spec_path: Path, server: ForkServer | None, meeting: tuple[str, int] | None = None) -> int:
    """Let torch start and watch the ranks; leave the exit codes of the failed ones for the launcher.

    `server` is the fork server that was started for them, `meeting` host and port of the agents of several nodes.
    """
    spec = AttemptSpec.read(spec_path)
    with _plain_torch_logs(), _uncollected():
        from primus_hydra.launch.elastic import run_group
    spec.stages("agent").reached("imported")
    policy = RestartPolicy(spec.backoff_s)
    decide = functools.partial(decide_restart, spec, policy)
    if server is not None and _is_fit(server):
        codes, refusal = run_group(
            spec, enter, (str(spec_path),), start_method="forkserver", decide=decide, meeting=meeting
        )
    else:
        argv = [*python_argv(), "-m", RANK_MODULE, str(spec_path)]
        codes, refusal = run_group(spec, argv[0], tuple(argv[1:]), start_method="spawn", decide=decide, meeting=meeting)
    if codes or refusal:
        said = {"exit_codes": {str(rank): code for rank, code in codes.items()}, "refusal": refusal}
        write_json(spec.attempt_paths.agent(this_node()), said)
    return int(bool(codes or refusal))


@contextlib.contextmanager
def _plain_torch_logs() -> Iterator[None]:
    """Let torch, while it is imported here, choose Python's own formatter for its log.

    Its own imports the compiler before it writes a traceback: seconds between the death of a rank and its restart.
    """
    given = os.environ.get(_LOG_FORMAT)
    os.environ.setdefault(_LOG_FORMAT, "%(asctime)s agent %(levelname)s %(name)s: %(message)s")
    try:
        yield
    finally:
        if given is None:
            del os.environ[_LOG_FORMAT]  # ranks that inherit this environment have a log of their own


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector off while modules are imported, which stay: it takes a tenth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _is_fit(server: ForkServer) -> bool:
    reason = server.unfit(PRELOAD_LIMIT_S)
    if reason is None:
        return True
    print(
        f"each rank starts a Python of its own, since the fork server is unfit: {reason}", file=sys.stderr, flush=True
    )
    server.stop()
    return False
