"""Seconds from typing a command to the first collective of all ranks on two nodes of a Slurm: ours, and srun torchrun.

    python benchmarks/submission.py [--backend megatron torchtitan] [--rounds 3]

Ours is the real command with `hydra/launcher=submitit` and a tiny model: composed, checked, the code copied, submitted,
started on the nodes. The other is `srun torchrun bare_start.py` typed on the same login node: no job in a queue, no
configuration, no copy; the same backend's imports, a gloo group over the network, one all_reduce. Both have a rank on
each of two nodes and run in turn, so that a busy machine hits both alike. The medians, their ratio, what is added, and
the share of each phase of ours are printed.

It starts a Slurm of its own in network namespaces, as the tests do (root only). All nodes are this one machine, so the
imports of two nodes share its CPUs: on a real cluster both take less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from first_collective import LIMIT_S, OF_BACKEND, TINY, last_of_each_stage, phases
from start_probe import install

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from primus_hydra.run.paths import RunPaths  # noqa: E402
from tests.slurm.cluster import Cluster, why_not  # noqa: E402  (the line above makes it known)

NODES = ("node1", "node2")
PORT = 29_500


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: seconds of the whole, and of each phase in order."""

    whole: float
    phases: Mapping[str, float] = field(default_factory=dict)


def main() -> None:
    """Run both ways in turn and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", choices=OF_BACKEND, default=list(OF_BACKEND))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if (reason := why_not()) is not None:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as name, Cluster(nodes=len(NODES)) as cluster:
        bench = Bench(Path(name), cluster)
        for backend in arguments.backend:
            rounds = [(bench.torchrun(backend), bench.ours(backend)) for _ in range(arguments.rounds)]
            report(backend, rounds)


class Bench:
    """Types commands on the login node, each in a folder of its own."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self._cluster = cluster
        self._count = 0
        install(folder / "site")

    def torchrun(self, backend: str) -> Start:
        """Start the smallest script by srun and torchrun."""
        folder = self._new_folder()
        script = Path(__file__).with_name("bare_start.py")
        srun = ["srun", "--nodes=2", "--ntasks-per-node=1", f"--nodelist={','.join(NODES)}", "--cpus-per-task=1"]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={NODES[0]}:{PORT + self._count}", "--rdzv-id=bench"]
        began = time.monotonic()
        self._type(
            *srun,
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *meeting),
            *(str(script), backend, str(folder)),
        )
        return Start(whole=max(float(note.read_text().split()[1]) for note in folder.glob("*-0")) - began)

    def ours(self, backend: str) -> Start:
        """Submit the same as a run."""
        folder = self._new_folder()
        began = time.time()
        self._type(
            *(sys.executable, "-m", "primus_hydra", *TINY, *OF_BACKEND[backend], f"backend={backend}"),
            *("hydra/launcher=submitit", "launch.nodes=2", "launch.ranks_per_node=1", "parallel.dp_shard=2"),
            *("training.steps=1", "checkpoint.enable=false", f"run.dir={folder}", "run.name=run"),
        )
        return _start_of(RunPaths(folder / "run"), began)

    def _new_folder(self) -> Path:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return folder

    def _type(self, *command: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        own = {"PYTHONPATH": str(self._folder / "site"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        ended = subprocess.run(
            self._cluster.argv(command),
            cwd=ROOT,
            env=kept | self._cluster.environment | own,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if ended.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")


def _start_of(paths: RunPaths, began: float) -> Start:
    """Return the start of a run, whose files tell when each phase was over."""
    submission, attempt = paths.submission(1), paths.attempt(1)
    times = json.loads(attempt.times.read_text())
    reached = last_of_each_stage(times["stages"])
    marks = (
        ("composing and checks", _born(paths.submissions_lock)),
        ("copy of the code", submission.script.stat().st_mtime),
        ("sbatch", submission.record.stat().st_mtime),
        ("queue", _born(submission.log)),
        ("srun", _born(submission.node_log(0))),
        ("launcher begins", _born(attempt.root)),
        ("launcher prepares", float(times["began"])),
    )
    spent = dict(_between(began, marks)) | phases(reached)
    return Start(whole=float(times["began"]) - began + reached["collective"], phases=spent)


def _between(began: float, marks: Sequence[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    before = began
    for name, moment in marks:
        yield name, max(0.0, moment - before)
        before = max(before, moment)


def _born(path: Path) -> float:
    """Return when a file was made, in seconds since the epoch; Python tells it from 3.12 only."""
    return float(subprocess.run(["stat", "-c", "%.W", str(path)], capture_output=True, text=True, check=True).stdout)


def report(backend: str, rounds: Sequence[tuple[Start, Start]]) -> None:
    """Print the medians, what is added to torchrun of the same round, and the phases."""
    theirs, ours = (_median(start.whole for start in starts) for starts in zip(*rounds, strict=True))
    added = _median(ours.whole - theirs.whole for theirs, ours in rounds)
    ratio = _median(ours.whole / theirs.whole for theirs, ours in rounds)
    print(f"{backend}, 2 nodes, 1 rank each, {len(rounds)} rounds")
    print(f"  srun torchrun {theirs:6.2f} s")
    print(f"  submission    {ours:6.2f} s, {ratio:.2f} of srun torchrun's, {added:+.2f} s")
    names = rounds[0][1].phases
    print(
        "    " + ", ".join(f"{name} {_median(ours.phases[name] for _, ours in rounds):.2f}" for name in names),
        flush=True,
    )


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    main()
