"""Seconds from the start of a launch to the first collective of all ranks: ours in both ways of starting, and torchrun.

    python benchmarks/first_collective.py [--backend torchtitan megatron] [--ranks 2 4 8] [--rounds 3] [--cold caches]

Ours is the real command with a tiny model; the time runs until the last rank has passed one all_reduce over the process
group that the trainer opened. Printed are the whole, from the command's first moment, and the launch alone, without
the composition that is paid once whatever the ranks. torchrun starts `bare_start.py`: the same backend's imports,
a gloo group, one all_reduce. All run in turn, so that a busy machine hits all alike; the medians and their ratios are
printed, and the share of each phase of ours.

On a machine that others use, `--at-most 0.2` repeats a start during which they took more than a fifth of the CPUs.
`--cold caches` drops the page cache before each start (root only); `--cold bytecode` gives each start an empty folder
for compiled modules.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from start_probe import install

TINY = (
    "model.hidden_size=64",
    "model.intermediate_size=128",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=4",
    "model.num_key_value_heads=2",
    "tokenizer.vocab_size=512",
    "training.seq_length=64",
    "training.global_batch_size=8",
    "lr_schedule.warmup_steps=2",
    "platform=cpu",
)
OF_BACKEND = {"torchtitan": (), "megatron": ("parallel.sharding=optimizer",)}
LIMIT_S = 900
TRIES = 5
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: seconds of the whole, of the launch alone, and of each phase.

    `cpu` are the seconds that all its processes used of the CPUs, to their end; `disturbed` is the part of the CPUs
    that other programs used meanwhile.
    """

    whole: float
    launch: float
    phases: Mapping[str, float] = field(default_factory=dict)
    cpu: float = 0.0
    disturbed: float = 0.0


def main() -> None:
    """Run all ways in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", choices=OF_BACKEND, default=list(OF_BACKEND))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", default=["torchrun", "fork_server", "subprocess"])
    parser.add_argument("--cold", choices=["caches", "bytecode"])
    parser.add_argument("--at-most", type=float, default=1.0, help="repeat a start that others disturbed more")
    arguments = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder / "site")
        bench = Bench(folder, arguments.cold, arguments.at_most)
        for backend in arguments.backend:
            for ranks in arguments.ranks:
                rounds = [bench.round(backend, ranks, arguments.ways) for _ in range(arguments.rounds)]
                report(backend, ranks, rounds)


class Bench:
    """Starts things in a folder, each in a folder of its own."""

    def __init__(self, folder: Path, cold: str | None, at_most: float) -> None:
        self._folder = folder
        self._cold = cold
        self._at_most = at_most
        self._count = 0

    def round(self, backend: str, ranks: int, ways: list[str]) -> dict[str, Start]:
        """Start once in each way."""
        return {way: self._undisturbed(backend, ranks, way) for way in ways}

    def _undisturbed(self, backend: str, ranks: int, way: str) -> Start:
        """Start until others left us alone enough, `TRIES` times at most."""
        starts: list[Start] = []
        while not starts or (starts[-1].disturbed > self._at_most and len(starts) < TRIES):
            busy, own, began = busy_s(), own_s(), time.monotonic()
            start = self._torchrun(backend, ranks) if way == "torchrun" else self._ours(backend, ranks, way)
            cpu = own_s() - own
            others = max(0.0, busy_s() - busy - cpu)
            capacity = (time.monotonic() - began) * (os.cpu_count() or 1)
            starts.append(replace(start, cpu=cpu, disturbed=others / capacity))
        return min(starts, key=lambda start: start.disturbed)

    def _torchrun(self, backend: str, ranks: int) -> Start:
        folder = self._new_folder()
        script = Path(__file__).with_name("bare_start.py")
        began = time.monotonic()
        run(
            [*torchrun(ranks), str(script), backend, str(folder)],
            environment(self._folder / "site", self._bytecode(folder)),
        )
        last = max(float(note.read_text().split()[1]) for note in folder.glob("*-0"))
        return Start(whole=last - began, launch=last - began)

    def _ours(self, backend: str, ranks: int, start: str) -> Start:
        folder = self._new_folder()
        command = [
            *(sys.executable, "-m", "primus_hydra", *TINY, *OF_BACKEND[backend]),
            *(f"backend={backend}", f"parallel.dp_shard={ranks}", f"launch.start={start}"),
            *("training.steps=1", "checkpoint.enable=false", f"run.dir={folder}", "run.name=run"),
        ]
        began = time.time()
        run(command, environment(self._folder / "site", self._bytecode(folder)))
        times = json.loads((folder / "run" / "attempts" / "1" / "times.json").read_text())
        composing = float(times["began"]) - began
        reached = last_of_each_stage(times["stages"])
        return Start(
            whole=composing + reached["collective"],
            launch=reached["collective"],
            phases={"composing": composing, **phases(reached)},
        )

    def _new_folder(self) -> Path:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        if self._cold == "caches":
            os.sync()
            DROP_CACHES.write_text("3")
        return folder

    def _bytecode(self, folder: Path) -> Path | None:
        return folder / "bytecode" if self._cold == "bytecode" else None


def adopt_orphans() -> None:
    """Become the parent of what a child leaves (a fork server outlives its agent), to count its CPU time."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def busy_s() -> float:
    """Return the seconds that all CPUs were busy since the machine started (Linux)."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    user, nice, system, _, _, irq, softirq = (int(word) for word in words[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """Return the CPU seconds of this process and of all that it has started; waits for the end of what still runs."""
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def torchrun(ranks: int, *more: str) -> list[str]:
    """Return the command of torchrun."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *more]


def environment(site: Path, bytecode: Path | None = None) -> dict[str, str]:
    """Return the caller's environment as a user's would be, the same for all ways."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    more = {} if bytecode is None else {"PYTHONPYCACHEPREFIX": str(bytecode)}
    return {**kept, **more, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def run(command: list[str], env: Mapping[str, str]) -> None:
    """Run to the end; show what it said if it failed."""
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")


def last_of_each_stage(stages: list[Mapping[str, object]], restart: int = 0) -> dict[str, float]:
    """Return when the last process reached each stage of a start, in seconds since the launcher began."""
    reached: dict[str, float] = {}
    for item in stages:
        who = "rank" if str(item["who"]).startswith("rank") else str(item["who"])
        name = str(item["stage"]) if who == "rank" else f"{who} {item['stage']}"
        if item["restart"] == restart:
            reached[name] = max(reached.get(name, 0.0), float(str(item["at_s"])))
    return reached


def phases(reached: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds between the stages that bound each phase, in their order."""
    marks = [
        ("agent and server begin", "server started"),
        ("imports and patches", "server ready"),
        ("rendezvous", "agent rendezvous done"),
        ("ranks start", "started"),
        ("configuration", "configured"),
        ("first collective", "collective"),
        ("model and data", "built"),
        ("first step", "stepped"),
    ]
    found: dict[str, float] = {}
    before = 0.0
    for name, mark in marks:
        if mark in reached:
            found[name] = max(0.0, reached[mark] - before)
            before = max(before, reached[mark])
    return found


def report(backend: str, ranks: int, rounds: list[dict[str, Start]]) -> None:
    """Print the medians, the ratios to torchrun of the same round, and the phases."""
    print(f"{backend}, {ranks} ranks, {len(rounds)} rounds", flush=True)
    for way in rounds[0]:
        starts = [item[way] for item in rounds]
        line = f"  {way:<12} whole {_median(s.whole for s in starts):6.2f} s"
        if way != "torchrun":
            line += f", launch {_median(s.launch for s in starts):6.2f} s"
        if way != "torchrun" and "torchrun" in rounds[0]:
            whole = _median(item[way].whole / item["torchrun"].whole for item in rounds)
            launch = _median(item[way].launch / item["torchrun"].launch for item in rounds)
            line += f"; of torchrun's: whole {whole:.2f}, launch {launch:.2f}"
        cpu, disturbed = _median(s.cpu for s in starts), _median(s.disturbed for s in starts)
        print(f"{line} (CPU {cpu:.1f} s, disturbed {disturbed:.0%})", flush=True)
        if starts[0].phases:
            names = starts[0].phases
            print("    " + ", ".join(f"{name} {_median(s.phases[name] for s in starts):.2f}" for name in names))


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    main()
