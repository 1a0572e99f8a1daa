"""torch's elastic agent on this node, in a process of its own: `python -m primus_hydra.launch.agent SPEC`.

The agent starts the ranks, restarts all of them when one dies, and gives every start a fresh rendezvous. It handles no
signals: the launcher decides what a signal means and tells the ranks itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from primus_hydra.launch.outer import python_argv
from primus_hydra.launch.plan import RANK_MODULE
from primus_hydra.run.atomic import write_json
from primus_hydra.runtime.signals import STOP_SIGNALS
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent


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
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.layout.ranks_per_node,
        run_id=f"attempt-{spec.attempt}",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        # Without it the agent looks up its own host name, which need not resolve.
        local_addr="127.0.0.1",
        max_restarts=spec.max_restarts,
        monitor_interval=0.1,
        signals_to_handle="SIGHUP",
        logs_specs=DefaultLogsSpecs(log_dir=str(spec.attempt_paths.errors)),
    )
    argv = [*python_argv(), "-m", RANK_MODULE, str(spec_path)]
    try:
        elastic_launch(config, argv[0])(*argv[1:])
    except ChildFailedError as error:
        codes = {str(rank): failure.exitcode for rank, failure in error.failures.items()}
        write_json(spec.attempt_paths.agent, {"exit_codes": codes})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
