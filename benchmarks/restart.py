"""Seconds from the death of a rank to stepping again: the real command, and torchrun around the smallest script.

    python benchmarks/restart.py [--backend torchtitan megatron] [--ranks 2] [--rounds 3]

Ours trains a tiny model with a checkpoint every ten steps. A rank is killed (SIGKILL) a few steps after one; the time
runs until all ranks have finished a step again, and until the first step that had not been done before. The load of
the checkpoint is told apart. torchrun restarts `bare_start.py` after the same kill; its time ends at the first
all_reduce of all ranks, since that script has nothing to load and no step. All run in turn; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from first_collective import LIMIT_S, OF_BACKEND, TINY, environment, last_of_each_stage, torchrun
from start_probe import install

SAVE_EVERY = 10
KILL_AFTER = 13
BARE_S = 120.0
"""How long the bare script goes on reducing; it is ended as soon as it has restarted."""
STAGES = {
    "agent rank ended": "death seen",
    "agent ranks ended": "others ended",
    "agent rendezvous done": "rendezvous",
    "started": "ranks start",
    "configured": "configuration",
    "collective": "first collective",
    "built": "model and data",
    "loading": "model and data",
    "loaded": "load",
    "stepped": "first step",
}
"""What the time before each stage went into."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Seconds since the kill: to the first step again (with the load's share), to the first new step; the phases."""

    again: float
    new: float
    phases: Mapping[str, float]

    @property
    def load(self) -> float:
        """Seconds of loading the checkpoint."""
        return self.phases.get("load", 0.0)


def main() -> None:
    """Run both in turn and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", choices=OF_BACKEND, default=list(OF_BACKEND))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder / "site")
        for backend in arguments.backend:
            ours, theirs = [], []
            for number in range(arguments.rounds):
                ours.append(restart_ours(folder, f"{backend}-{number}", backend, arguments.ranks))
                theirs.append(restart_torchrun(folder, f"bare-{backend}-{number}", backend, arguments.ranks))
            report(backend, arguments.ranks, ours, theirs)


def restart_ours(folder: Path, name: str, backend: str, ranks: int) -> Restart:
    """Kill a rank of a real run, and read what it took."""
    run = folder / name
    command = [
        *(sys.executable, "-m", "primus_hydra", *TINY, *OF_BACKEND[backend], f"backend={backend}"),
        *(f"parallel.dp_shard={ranks}", "training.steps=1000", f"checkpoint.every={SAVE_EVERY}"),
        *("launch.max_restarts=2", f"run.dir={folder}", f"run.name={name}"),
    ]
    with running(command, environment(folder / "site")) as process:
        wait(process, lambda: newest_step(run) >= KILL_AFTER)
        pid = int((run / "attempts" / "1" / "pids" / f"rank-{ranks - 1}").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        killed, done = time.time(), newest_step(run)
        wait(process, lambda: newest_step(run, restart=1) > done)
        new = time.time() - killed
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    times = json.loads((run / "attempts" / "1" / "times.json").read_text())
    before = killed - float(times["began"])
    ended = last_of_each_stage([item for item in times["stages"] if float(item["at_s"]) > before])
    marks = {**ended, **last_of_each_stage(times["stages"], restart=1)}
    return Restart(again=marks["stepped"] - before, new=new, phases=phases(marks, before))


def restart_torchrun(folder: Path, name: str, backend: str, ranks: int) -> float:
    """Kill a rank of the bare script under torchrun; return the seconds to the first collective after it."""
    notes = folder / name
    notes.mkdir()
    script = Path(__file__).with_name("bare_start.py")
    command = [*torchrun(ranks, "--max-restarts=1"), str(script), backend, str(notes), str(BARE_S)]
    # Without it torchrun's own restart fails: its ranks find the addresses of the dead in the shared store.
    env = {**environment(folder / "site"), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with running(command, env) as process:
        wait(process, lambda: len(list(notes.glob("*-0"))) == ranks)
        time.sleep(1.0)
        os.kill(int((notes / f"{ranks - 1}-0").read_text().split()[0]), signal.SIGKILL)
        killed = time.monotonic()
        wait(process, lambda: len(list(notes.glob("*-1"))) == ranks)
        return max(float(note.read_text().split()[1]) for note in notes.glob("*-1")) - killed


class running:
    """A process that is gone when the block ends, with all that it started."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env

    def __enter__(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            self._command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate(timeout=LIMIT_S)


def wait(process: subprocess.Popen[str], true: Callable[[], bool]) -> None:
    """Wait for something while the process runs."""
    end = time.monotonic() + LIMIT_S
    while not true():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise SystemExit(f"it ended, or took too long: {process.communicate()[0]}")
        time.sleep(0.01)


def newest_step(run: Path, restart: int | None = None) -> int:
    """Return the newest step that a run has logged, of one restart or of all; 0 before the first."""
    try:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return max((row["step"] for row in rows if restart is None or row["restart"] == restart), default=0)


def phases(marks: Mapping[str, float], killed: float) -> dict[str, float]:
    """Return what the time between the kill and the first step went into, in the order of the stages."""
    found: dict[str, float] = {}
    before = killed
    for at, name in sorted((at, STAGES[stage]) for stage, at in marks.items() if stage in STAGES):
        found[name] = found.get(name, 0.0) + at - before
        before = at
    return found


def report(backend: str, ranks: int, ours: list[Restart], theirs: list[float]) -> None:
    """Print the medians."""
    again, load = (statistics.median(values) for values in ([r.again for r in ours], [r.load for r in ours]))
    print(f"{backend}, {ranks} ranks, {len(ours)} rounds", flush=True)
    print(f"  ours: a step again after {again:.2f} s ({again - load:.2f} s without the load of the checkpoint)")
    print(f"    a new step after {statistics.median(r.new for r in ours):.2f} s")
    names = list(dict.fromkeys(name for restart in ours for name in restart.phases))
    parts = (f"{name} {statistics.median(r.phases.get(name, 0.0) for r in ours):.2f}" for name in names)
    print("    " + ", ".join(parts))
    bare = statistics.median(theirs)
    reached = statistics.median(
        sum(seconds for name, seconds in r.phases.items() if name not in ("model and data", "load", "first step"))
        for r in ours
    )
    print(f"  first collective again: ours {reached:.2f} s, torchrun {bare:.2f} s, ratio {reached / bare:.2f}")


if __name__ == "__main__":
    main()
