"""From a composed job to a job in Slurm's queue: what is checked, what is written, what is submitted.

Everything that needs no node is checked before anything is written. The submitter neither prepares data nor takes the
run's lock nor begins an attempt: the job does that on its nodes. A submission that is refused leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from primus_hydra.config.build import dump_job
from primus_hydra.config.composed import Composed
from primus_hydra.data.cache import CACHE_VARIABLE
from primus_hydra.errors import HostError, PrimusError, Problem, UserError
from primus_hydra.launch.environment import environment_problems
from primus_hydra.launch.job_code import snapshot_code
from primus_hydra.launch.outer import outer_launch, python_argv
from primus_hydra.launch.pyxis import pyxis_step
from primus_hydra.run.atomic import write_json, write_text
from primus_hydra.run.condition import condition_of
from primus_hydra.run.lock import RunLock, life_of, read_holder
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import write_command
from primus_hydra.run.snapshot import python_path
from primus_hydra.run.storage import run_storage
from primus_hydra.run.submission import JobStanding, Submission, newest_submission, write_submission
from primus_hydra.slurm.options import cpus_per_task, sbatch_options, slurm_problems
from primus_hydra.slurm.script import SlurmJob, script_text
from primus_hydra.slurm.state import look_at
from primus_hydra.slurm.submit import LAUNCHER, refuse_without_slurm, submit_script
from primus_hydra.slurm.wait import Followed
from primus_hydra.tasks.disk_room import refuse_too_little_room
from primus_hydra.tasks.preparation import is_finished
from primus_hydra.tasks.readiness import Ready, examine
from primus_hydra.tasks.record import command_of, plain_sources
from primus_hydra.tasks.run_folder import refuse_other_training, run_paths

NODE_MODULE = "primus_hydra.node"
CODE_FOLDER = ".code"
"""Below the folder of the runs: copies of code, each named by its content."""
_LATER = "task=runs task.run={} shows it, task.action=stop stops it"


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A job that Slurm took."""

    composed: Composed
    followed: Followed

    @property
    def paths(self) -> RunPaths:
        """The run's folder."""
        return self.followed.paths

    @property
    def submission(self) -> Submission:
        """The job's number, and what it was given."""
        return self.followed.submission


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A job that may be submitted; `finished`: there is nothing left to do in its run."""

    composed: Composed
    ready: Ready
    paths: RunPaths
    finished: bool = False


def check_submission(composed: Composed) -> Checked:
    """Check everything that needs no node; raises UserError or HostError with all that stands against it."""
    examined = examine(composed.job, os.environ, on_this_host=False)
    users = [*examined.users, *submission_problems(composed)]
    if users:
        raise UserError(*users, *examined.hosts)
    if examined.hosts:
        raise HostError(*examined.hosts)
    paths = run_paths(composed)
    refuse_other_training(paths, composed.tree, composed.job.resume)
    finished = is_finished(paths, composed.job)
    if not finished:
        refuse_without_slurm()
        refuse_too_little_room(paths, composed.job)
    return Checked(composed=composed, ready=examined.ready(), paths=paths, finished=finished)


def submission_problems(composed: Composed) -> list[Problem]:
    """Say what the user must mend before a job can be submitted, beside what every job needs."""
    problems = [*slurm_problems(composed.job), *environment_problems(composed.job)]
    if composed.platform_detected:
        what = f"this machine is {composed.job.platform.name}, and the job runs on others: their platform must be named"
        problems.append(Problem(key="platform", what=what, hint="platform=cpu, platform=mi300x, ..."))
    if outer_launch(os.environ) is not None:
        what = "this command was itself started as one of several ranks, and each would submit a job"
        problems.append(Problem(key=LAUNCHER, what=what, hint="type it without torchrun or srun"))
    return problems


def slurm_job(checked: Checked, number: int, code: tuple[Path, ...] = ()) -> SlurmJob:
    """Return the job of a submission as it is given to Slurm; `code` are folders that hold the code as it is now."""
    composed, paths, layout = checked.composed, checked.paths, checked.ready.layout
    job, folder = composed.job, paths.submission(number).root
    ranks = f"{layout.nodes} node{'s' if layout.nodes > 1 else ''} with {layout.ranks_per_node} ranks each"
    pyxis = pyxis_step(job, paths.root, code) if job.launch.container.kind == "pyxis" else None
    python = pyxis.python if pyxis else _python(code)
    return SlurmJob(
        name=job.launch.slurm.job_name or run_name(composed, paths),
        nodes=layout.nodes,
        command=(*python, "-u", "-m", NODE_MODULE, "--run", str(paths.root), "--submission", str(number)),
        configuration=dump_job(job),
        folder=folder,
        options=sbatch_options(job, ranks_per_node=layout.ranks_per_node),
        srun_args=(*(pyxis.srun_args if pyxis else ()), *job.launch.slurm.srun_args),
        setup=(*job.launch.slurm.setup, *(_cache_of(pyxis.cache) if pyxis else ())),
        cpus=cpus_per_task(job, layout.ranks_per_node),
        import_path=pyxis.import_path if pyxis else code,
        requeue_note=paths.submission(number).requeue if pyxis else None,
        about=(f"Run {run_name(composed, paths)}: {ranks}.", "Submitted again, it goes on with the same run."),
    )


def _code_as_it_is(checked: Checked) -> tuple[Path, ...]:
    """Copy the code of a job; return the folders to import it from."""
    runs = Path(checked.composed.job.run.dir).expanduser().absolute()
    return python_path(*snapshot_code(checked.composed.job, runs / CODE_FOLDER, without=runs))


def _cache_of(folder: Path) -> tuple[str, ...]:
    """Return the lines that let a container have the cache of the machine, which pyxis mounts only if it is there."""
    return (f"export {CACHE_VARIABLE}={shlex.quote(str(folder))}", f'mkdir -p "${CACHE_VARIABLE}"')


def _python(code: Sequence[Path]) -> tuple[str, ...]:
    """Return the interpreter's command; with a copy of the code nothing comes from where the job happens to stand."""
    return (sys.executable, "-P") if code else tuple(python_argv())


def run_name(composed: Composed, paths: RunPaths) -> str:
    """Return the name of a run in lists: a point of a sweep is called run/point."""
    return f"{paths.root.parent.name}/{paths.root.name}" if composed.swept else paths.root.name


def next_submission(paths: RunPaths) -> int:
    """Return the number of the coming submission, from 1."""
    return max(paths.submission_numbers(), default=0) + 1


def submit(checked: Checked) -> Submitted:
    """Submit a job; raises UserError if its run is at work or in the queue already, and what sbatch makes of it."""
    paths = checked.paths
    with run_storage(paths.root), _folders(paths), RunLock(paths.submissions_lock):
        refuse_at_work(paths)
        number = next_submission(paths)
        with _new_folder(paths.submission(number).root):
            return _submit(checked, number)


def _submit(checked: Checked, number: int) -> Submitted:
    composed, paths = checked.composed, checked.paths
    code = _code_as_it_is(checked)
    place, job = paths.submission(number), slurm_job(checked, number, code)
    write_text(place.script, script_text(job))
    place.script.chmod(0o755)
    write_text(place.config, job.configuration)
    write_json(place.provenance, plain_sources(composed.provenance))
    write_command(place.command, command_of(composed))
    submission = Submission(
        number=number,
        job_id="",
        script=str(place.script),
        submitted_at=time.time(),
        host=socket.gethostname(),
        nodes=job.nodes,
        code=os.pathsep.join(map(str, code)) or None,
    )
    submission = replace(submission, job_id=submit_script(place.script, owned=job.options))
    write_submission(place.record, submission)
    followed = Followed(paths=paths, submission=submission, grace_s=composed.job.launch.stop_grace_s)
    return Submitted(composed=composed, followed=followed)


def refuse_at_work(paths: RunPaths) -> None:
    """Raise UserError if a job or a process is at work in the run, HostError if Slurm cannot be asked for its job."""
    submission = newest_submission(paths)
    holder = read_holder(paths.lock)
    if submission is not None:
        look = look_at([submission])[submission.job_id]
        if look.word == "unknown":
            what = f"the run was submitted as job {submission.job_id}, and Slurm cannot be asked for it: {look.reason}"
            raise HostError(Problem(key="run.name", what=what, where=str(paths.root), hint="try again later"))
        if look.live:
            state = f"{look.state.lower()}{f', {look.reason}' if look.reason else ''}"
            what = f"the run is submitted already, as job {submission.job_id} ({state})"
            hint = f"{_LATER.format(paths.root.name)}; another run.name is another run"
            raise UserError(Problem(key="run.name", what=what, where=str(paths.root), hint=hint))
        condition = condition_of(paths, job=JobStanding(submission=submission, look=look))
    else:
        condition = condition_of(paths)
    if holder is not None and (condition.live or life_of(holder) == "alive"):
        what = f"another attempt is at work in the run: {holder}"
        raise UserError(Problem(key="run.name", what=what, where=str(paths.root), hint=_LATER.format(paths.root.name)))


@contextlib.contextmanager
def _folders(paths: RunPaths) -> Iterator[None]:
    """Make the run's folder; a run that was never submitted and is refused now leaves none."""
    is_new = not paths.root.exists()
    paths.submissions.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            paths.submissions_lock.unlink(missing_ok=True)
        for folder in (paths.submissions, paths.root, *([paths.root.parent] if is_new else [])):
            with contextlib.suppress(OSError):  # not empty: it holds something else
                folder.rmdir()
        raise


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make a submission's folder, and take it away again if the submission is refused."""
    folder.mkdir()
    try:
        yield
    except PrimusError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
