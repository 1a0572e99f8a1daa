"""`python -m tests.drills [FAULT ...] [--backend NAME]`: drill faults, and keep their page.

Without a fault every cell is run. `docs/drills.md` gets the results of a full run, and with `--keep` those of any; the
exit code is 1 if a drill did not hold.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.drills import page
from tests.drills.disks import can_mount
from tests.drills.fault import Fault
from tests.drills.lane import BACKENDS, Lane, Result
from tests.drills.table import FAULTS


def main(argv: Sequence[str]) -> int:
    """Run the command line."""
    # A shell starts what it puts in the background with Ctrl-C ignored, and so would be every command that we type.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = parse(argv)
    if given.list:
        print("\n".join(f"{fault.name:<24}{fault.sentence}" for fault in FAULTS.values()))
        return 0
    faults = [FAULTS[name] for name in given.faults or FAULTS]
    if any(fault.needs_mounts for fault in faults) and not can_mount():
        print("the faults of the disk need a process that may mount: run them as root", file=sys.stderr)
        return 3
    backends = [given.backend] if given.backend else list(BACKENDS)
    results = run(faults, backends, workers=given.workers)
    if given.keep or not (given.faults or given.backend):
        page.keep_results(results)
    failed = [result for result in results if not result.held]
    print(f"{len(results) - len(failed)} of {len(results)} drills held")
    return int(bool(failed))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description="Drill faults of a run.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="names of faults; none: all")
    parser.add_argument("--backend", choices=BACKENDS, help="one backend instead of both")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="drills at the same time")
    parser.add_argument("--keep", action="store_true", help="write the results into the page (a full run always does)")
    parser.add_argument("--list", action="store_true", help="show the faults")
    given = parser.parse_args(argv)
    if unknown := [name for name in given.faults if name not in FAULTS]:
        parser.error(f"no such fault: {', '.join(unknown)} (--list shows them)")
    return given


def run(faults: Sequence[Fault], backends: Sequence[str], *, workers: int) -> list[Result]:
    """Run the cells and print each as it ends; what a failed one left stays in its folder."""
    # Not in memory: a run is what it is on a disk.
    folder = Path(tempfile.mkdtemp(prefix="drills-"))
    lane = Lane(folder)
    cells = [(fault, backend) for fault in faults for backend in backends]
    with ThreadPoolExecutor(workers) as pool:
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
