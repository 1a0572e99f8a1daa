"""Step time of a run through us against the smallest bare torchtitan script with the same configuration.

    python benchmarks/step_time.py [--steps 40] [--rounds 3] [OVERRIDE...]

Both sides train the same model on the same text, in processes of their own, one after the other and in turn, so that a
busy machine hits both alike. The bare side is torchtitan's own `Trainer` with torchtitan's own data loader, metrics and
checkpoint manager, and only the patches without which it cannot run here. A step is the time between two log lines; the
first steps are left out. Printed: the median step of each side per round, and the ratio of the medians over all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from primus_hydra.config.compose import Request, compose
from primus_hydra.host.cores import usable_cores

WARM_UP_STEPS = 5


def main() -> None:
    """Run both sides in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    overrides = [f"training.steps={arguments.steps}", "checkpoint.enable=false", *arguments.overrides]
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), overrides, rounds=arguments.rounds, bare="bare_torchtitan.py")


def compare(folder: Path, overrides: list[str], *, rounds: int, bare: str) -> None:
    """Run the script `bare` of this folder and us in turn, and print the medians and their ratio."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        theirs += _report("bare", number, _run_bare(folder / f"bare-{number}", overrides, bare))
        ours += _report("ours", number, _run_ours(folder / f"ours-{number}", overrides))
    ratio = statistics.median(ours) / statistics.median(theirs)
    medians = f"ours {statistics.median(ours):.4f} s, bare {statistics.median(theirs):.4f} s"
    print(f"median step: {medians}, ratio {ratio:.3f}")


def _report(side: str, number: int, steps: list[float]) -> list[float]:
    print(
        f"round {number + 1}, {side}: median step {statistics.median(steps):.4f} s over {len(steps)} steps", flush=True
    )
    return steps


def _run_ours(folder: Path, overrides: list[str]) -> list[float]:
    command = [sys.executable, "-m", "primus_hydra", f"run.dir={folder}", "run.name=run", "resume=never", *overrides]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [float(row["step_time_s"]) for row in rows][WARM_UP_STEPS:]


def _run_bare(folder: Path, overrides: list[str], script: str) -> list[float]:
    folder.mkdir()
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *overrides]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_same_environment())
    return [float(seconds) for seconds in json.loads((folder / "steps.json").read_text())][WARM_UP_STEPS:]


def _same_environment() -> dict[str, str]:
    """Return the environment with what the launcher exports for speed: threads, and the platform's own variables."""
    platform = compose(Request(overrides=[])).job.platform
    return {**os.environ, "OMP_NUM_THREADS": str(usable_cores()), **platform.env}


if __name__ == "__main__":
    main()
