"""What `task=runs` shows of runs: the list, one run, its logs, its difference from another. Reads only."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from primus_hydra.errors import ExitCode, Problem, UserError
from primus_hydra.run.difference import compare_runs
from primus_hydra.run.listing import list_runs
from primus_hydra.run.overview import overview_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import newest_submission
from primus_hydra.run.tail import last_lines
from primus_hydra.tasks.runs_jobs import job_of, jobs_of
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.runs_text import difference_lines, list_lines, overview_lines


def show_list(base: Path, *, as_json: bool) -> int:
    """Print one line for each run below a folder."""
    now = time.time()
    runs = list_runs(base, now=now, ask=jobs_of)
    if as_json:
        print_json([asdict(run) for run in runs])
    else:
        print_lines(list_lines(runs, base, now=now))
    return int(ExitCode.DONE)


def show_status(name: str, root: Path, *, as_json: bool) -> int:
    """Print all that is known of one run."""
    overview = overview_of(name, root, job=job_of(RunPaths(root)))
    if as_json:
        print_json(asdict(overview) | {"goodput": overview.goodput.to_json() if overview.goodput else None})
    else:
        print_lines(overview_lines(overview, now=time.time()))
    return int(ExitCode.DONE)


def show_logs(name: str, root: Path, *, lines: int, rank: int | None, as_json: bool) -> int:
    """Print the ends of the logs of all ranks, or of one; the agent's too where ranks may have said something in it.

    Of a run that was submitted also those of its newest job: a job that fails early has no others.

    Raises UserError for a rank without a log.
    """
    logs = _logs(RunPaths(root), name, rank)
    ends = {log: [line.decode("utf-8", errors="replace") for line in last_lines(log, lines)] for log in logs.values()}
    if as_json:
        print_json({title: {"path": log, "lines": ends[log]} for title, log in logs.items()})
        return int(ExitCode.DONE)
    parts = [[f"==> {title}: {log}", *ends[log]] for title, log in logs.items()]
    print_lines([line for number, part in enumerate(parts) for line in ([""] if number else []) + part])
    if not logs:
        print_lines([f"{name} has no logs yet"])
    return int(ExitCode.DONE)


def show_difference(left: tuple[str, Path], right: tuple[str, Path], *, as_json: bool) -> int:
    """Print where the configurations of two runs, each a name and a folder, differ."""
    found = compare_runs(RunPaths(left[1]), RunPaths(right[1]))
    if as_json:
        print_json({"left": left[0], "right": right[0], "differences": [asdict(item) for item in found]})
    else:
        print_lines(difference_lines(left[0], right[0], found))
    return int(ExitCode.DONE)


def _logs(paths: RunPaths, name: str, rank: int | None) -> dict[str, Path]:
    ranks = paths.rank_logs()
    if rank is None:
        agent = {"agent": paths.agent_log} if last_lines(paths.agent_log, 1) else {}
        return _job_logs(paths) | {f"rank {number}": log for number, log in ranks.items()} | agent
    if rank not in ranks:
        there = f"ranks with a log: {_spans(list(ranks))}" if ranks else "no rank has begun a log yet"
        raise UserError(Problem(key="task.rank", what=f"{name} has no log of rank {rank}", hint=there))
    return {f"rank {rank}": ranks[rank]}


def _job_logs(paths: RunPaths) -> dict[str, Path]:
    submission = newest_submission(paths)
    if submission is None:
        return {}
    logs = paths.submission(submission.number).logs()
    return {f"job {submission.job_id}, {log.stem}": log for log in logs if last_lines(log, 1)}


def _spans(ranks: list[int]) -> str:
    whole = ranks == list(range(ranks[0], ranks[-1] + 1))
    return f"{ranks[0]} to {ranks[-1]}" if whole and len(ranks) > 1 else ", ".join(map(str, ranks))
