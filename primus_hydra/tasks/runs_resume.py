"""`task.action=resume`: go on with a run, with the configuration that it has saved, from wherever one types it.

Nothing is composed again: files of groups, environment variables and folders may have changed since, and the run should
go on as it was. The same checks as at every start decide whether it may.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path

import yaml

from primus_hydra.config.build import load_job, to_tree
from primus_hydra.config.composed import Composed
from primus_hydra.config.provenance import Source, placed
from primus_hydra.config.schema import JobConfig, RunConfig
from primus_hydra.errors import PrimusError, Problem, UserError
from primus_hydra.run.atomic import read_json
from primus_hydra.run.condition import condition_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import RunCommand, newest_command, read_command, saved_sources
from primus_hydra.run.submission import newest_submission
from primus_hydra.tasks.contract import make_task
from primus_hydra.tasks.ending import replaced
from primus_hydra.tasks.run_folder import run_paths
from primus_hydra.tasks.runs_jobs import job_of
from primus_hydra.ui.runs_text import headline


def resume_run(name: str, root: Path) -> int:
    """Start the next attempt of a run and return its exit code: in this process, or as a job where it was one before.

    Raises UserError for a run that is at work or whose configuration cannot be read, and whatever a start raises.
    """
    paths = RunPaths(root)
    condition = condition_of(paths, job=job_of(paths))
    if condition.word == "queued" or (condition.live and (condition.holder or condition.job)):
        known = condition.holder is not None and condition.word != "queued"
        what = f"{name} is at work: {condition.holder}" if known else headline(name, condition)
        raise UserError(
            Problem(key="task.run", what=what, hint="task.action=follow shows it, task.action=stop stops it")
        )
    composed = saved_job(paths)
    try:
        return make_task(composed.job.task).run(composed)
    except PrimusError as error:
        sources = saved_sources(paths.provenance)
        raise type(error)(*(placed(problem, sources) for problem in error.problems)) from error


def saved_job(paths: RunPaths) -> Composed:
    """Return the job of a run as it was composed, so that it leads to the same folder.

    Raises UserError if there is none, with the command that made it where that is known.
    """
    command = newest_command(paths)
    job = going_on(_read_job(paths, command))
    composed = job_at(paths, job, command, saved_sources(paths.provenance))
    return dataclasses.replace(composed, launcher="submitit") if _was_submitted(paths) else composed


def _was_submitted(paths: RunPaths) -> bool:
    """Whether the newest start of a run was that of a job: the attempts in it name the command that was submitted."""
    submission = newest_submission(paths)
    if submission is None:
        return False
    numbers = paths.attempt_numbers()
    began = read_json(paths.attempt(numbers[-1]).times) if numbers else None
    newer = began is not None and float(str(began.get("began") or 0)) > submission.submitted_at
    submitted = read_command(paths.submission(submission.number).command)
    return not newer or read_command(paths.attempt(numbers[-1]).command) == submitted


def job_at(paths: RunPaths, job: JobConfig, command: RunCommand | None, sources: Mapping[str, Source]) -> Composed:
    """Return a job that leads to the folder of its run, wherever that lies now; `command` began it."""
    composed = Composed(
        job=job,
        tree=to_tree(job),
        overrides=_overrides(paths, job, command),
        swept=command.swept if command else (),
        provenance=dict(sources),
    )
    return composed if run_paths(composed) == paths else _moved(composed, paths)


def _read_job(paths: RunPaths, command: RunCommand | None) -> JobConfig:
    try:
        return load_job(_config(paths))
    except (OSError, ValueError, yaml.YAMLError) as error:
        found: tuple[Problem, ...] = (Problem(what=f"the saved configuration cannot be read: {error}"),)
    except UserError as error:  # saved by another version
        found = error.problems
    hint = f"it was started by: {_typed(command)}" if command else "start it again by the command that you know"
    first = dataclasses.replace(found[0], where=str(paths.config), hint=hint)
    raise UserError(first, *found[1:])


def _config(paths: RunPaths) -> Path:
    """Return the saved configuration; that of a job in which no attempt has begun yet where there is no other."""
    submission = None if paths.config.exists() else newest_submission(paths)
    return paths.config if submission is None else paths.submission(submission.number).config


def going_on(job: JobConfig) -> JobConfig:
    """Return the job without what would make its next attempt begin from nothing."""
    resume = "auto" if job.resume == "never" else job.resume
    return dataclasses.replace(job, resume=resume, run=dataclasses.replace(job.run, fresh=False))


def _moved(composed: Composed, paths: RunPaths) -> Composed:
    """Point the job at the folder where its run lies now: it was moved, or `run.fresh` gave it a number."""
    place: RunConfig = dataclasses.replace(composed.job.run, dir=str(paths.root.parent), name=paths.root.name)
    job = dataclasses.replace(composed.job, run=place)
    words = replaced(composed.overrides, {"run.dir": place.dir, "run.name": paths.root.name})
    found = dataclasses.replace(composed, job=job, tree=to_tree(job), overrides=words, swept=())
    if run_paths(found) != paths:
        what = f"no run of this project can have the name {paths.root.name}"
        raise UserError(Problem(key="task.run", what=what, where=str(paths.root), hint="give the folder its old name"))
    return found


def _overrides(paths: RunPaths, job: JobConfig, command: RunCommand | None) -> list[str]:
    """Return what to type for the same run from here, as the closing lines tell it."""
    if command is None:
        return ["task=runs", f"task.run={paths.root}", "task.action=resume"]
    elsewhere = command.folder != str(Path.cwd())
    return replaced(command.overrides, {"run.dir": job.run.dir}) if elsewhere else list(command.overrides)


def _typed(command: RunCommand) -> str:
    return f"cd {shlex.quote(command.folder)} && {shlex.join(command.argv)}"
