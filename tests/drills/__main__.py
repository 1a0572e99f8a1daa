"""`python -m tests.drills [FAULT ...] [--backend NAME]`: drill faults, and keep their page.

Without a fault every cell is run; `local` and `slurm` are all faults on one machine, and all in Slurm. `docs/drills.md`
gets the results of a full run, and with `--keep` those of any; the exit code is 1 if a drill did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.drills import page
from tests.drills.disks import can_mount
from tests.drills.fault import BACKENDS, Fault
from tests.drills.lane import Lane, Result
from tests.drills.table import FAULTS
from tests.slurm.cluster import Cluster, why_not

GROUPS = {
    "local": tuple(fault.name for fault in FAULTS.values() if not fault.on_slurm),
    "slurm": tuple(fault.name for fault in FAULTS.values() if fault.on_slurm),
}


def main(argv: Sequence[str]) -> int:
    """Run the command line."""
    # A shell starts what it puts in the background with Ctrl-C ignored, and so would be every command that we type.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = parse(argv)
    if given.list:
        print("\n".join(f"{fault.name:<34}{fault.sentence}" for fault in FAULTS.values()))
        return 0
    faults = chosen(given.faults)
    if any(fault.on_slurm for fault in faults) and (reason := why_not()) is not None:
        print(f"the faults of Slurm need one: {reason}", file=sys.stderr)
        return 3
    if any(fault.needs_mounts for fault in faults) and not can_mount():
        print("the faults of the disk need a process that may mount: run them as root", file=sys.stderr)
        return 3
    cells = [(fault, backend) for fault in faults for backend in fault.backends if given.backend in (None, backend)]
    results = run(cells, workers=given.workers)
    if given.keep or not (given.faults or given.backend):
        page.keep_results(results)
    failed = [result for result in results if not result.held]
    print(f"{len(results) - len(failed)} of {len(results)} drills held")
    return int(bool(failed))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description="Drill faults of a run.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="names of faults, or local or slurm; none: all")
    parser.add_argument("--backend", choices=BACKENDS, help="this backend only")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="drills at the same time")
    parser.add_argument("--keep", action="store_true", help="write the results into the page (a full run always does)")
    parser.add_argument("--list", action="store_true", help="show the faults")
    given = parser.parse_args(argv)
    if unknown := [name for name in given.faults if name not in (*FAULTS, *GROUPS)]:
        parser.error(f"no such fault: {', '.join(unknown)} (--list shows them)")
    return given


def chosen(names: Sequence[str]) -> list[Fault]:
    """Return the faults that names and groups stand for; all of them for none."""
    wanted = {fault for name in names for fault in GROUPS.get(name, (name,))}
    return [fault for fault in FAULTS.values() if not names or fault.name in wanted]


def run(cells: Sequence[tuple[Fault, str]], *, workers: int) -> list[Result]:
    """Run cells and print each as it ends; what a failed one left stays in its folder."""
    # Not in memory: a run is what it is on a disk.
    folder = Path(tempfile.mkdtemp(prefix="drills-"))
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
        lane = Lane(folder, functools.cache(lambda: stack.enter_context(Cluster(nodes=4))))
        futures = [pool.submit(lane.drill, fault, backend) for fault, backend in cells]
        results = []
        for future in futures:
            results.append(future.result())
            show(results[-1])
    if not all(result.held for result in results):
        print(f"what is left of the drills that did not hold: {folder}")
    return results


def show(result: Result) -> None:
    """Print one result as a person reads it."""
    codes, words = " then ".join(map(str, result.codes)), " then ".join(result.words)
    print(f"{result.fault}, {result.backend}: {'held' if result.held else 'DID NOT HOLD'}, {result.seconds:.0f} s")
    print(f"    exit code {codes}; the run is {words}; {result.repeated} steps done again")
    print(f"    {result.seen}", flush=True)
    for complaint in result.complaints:
        print(f"  ! {complaint}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
