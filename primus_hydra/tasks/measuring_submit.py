"""A measuring job on Slurm's nodes: submitted, followed until its report is there, and ended if it outlives that.

A node that is silent, or lost, must not end the job for the others, and must not keep it: the step goes on without it
(`--no-kill`, `--kill-on-bad-exit=0`), and once the report is there the job is cancelled.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from primus_hydra.config.build import dump_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import ExitCode, HostError, Problem, UserError
from primus_hydra.launch.cluster.nodelist import expand
from primus_hydra.launch.job_code import snapshot_code
from primus_hydra.launch.outer import python_argv
from primus_hydra.measure.beat import Listener
from primus_hydra.run.atomic import write_text
from primus_hydra.run.snapshot import python_path
from primus_hydra.run.submission import JobLook, Submission
from primus_hydra.slurm.cancel import cancel
from primus_hydra.slurm.options import cpus_per_task, sbatch_options, slurm_problems
from primus_hydra.slurm.script import SlurmJob, script_text
from primus_hydra.slurm.state import look_at
from primus_hydra.slurm.submit import refuse_without_slurm, submit_script

if TYPE_CHECKING:
    from primus_hydra.tasks.measuring import MeasuringTask

NODE_MODULE = "primus_hydra.measuring_node"
"""What srun starts on every node."""
_LOOK_S = 1.0
_LEAVES_S = 5.0
"""How long a job whose report is there may take to end by itself."""
STALE_S = 75.0
"""How long no sign of life of the first node may be seen: a network file system may show an old one for a minute."""
_START_S = 120.0
"""What a job may need beyond its nodes' own limits: Slurm starts them, and Python its imports."""


def submit_and_wait(task: MeasuringTask, composed: Composed, folder: Path) -> int:
    """Submit the job of a task, wait for its report and return the exit code; or say where it will be."""
    _refuse(composed)
    submission = _submit(task, composed, folder)
    _say(f"submitted as job {submission.job_id} ({submission.nodes} nodes); results in {folder}")
    if not composed.job.launch.wait:
        return int(ExitCode.DONE)
    try:
        return _wait(task, composed.job, folder, submission)
    except KeyboardInterrupt:
        cancel(submission)
        _say(f"job {submission.job_id} was cancelled")
        return int(ExitCode.INTERRUPTED)


def _refuse(composed: Composed) -> None:
    problems = slurm_problems(composed.job)
    if composed.platform_detected:
        what = f"this machine is {composed.job.platform.name}, and the job runs on others: their platform must be named"
        problems = [*problems, Problem(key="platform", what=what, hint="platform=cpu, platform=mi300x, ...")]
    if problems:
        raise UserError(*problems)
    refuse_without_slurm()


def slurm_job(task: MeasuringTask, job: JobConfig, folder: Path, code: tuple[Path, ...] = ()) -> SlurmJob:
    """Return the job as it is given to Slurm."""
    minutes = math.ceil((task.life_s(job) + _START_S) / 60)
    placed = replace(job, launch=replace(job.launch, slurm=replace(job.launch.slurm, requeue=False)))
    options = sbatch_options(placed, ranks_per_node=task.devices(job))
    python = (sys.executable, "-P") if code else tuple(python_argv())
    return SlurmJob(
        name=job.launch.slurm.job_name or task.name,
        nodes=job.launch.nodes,
        command=(*python, "-u", "-m", NODE_MODULE, "--out", str(folder)),
        configuration=dump_job(job),
        folder=folder / "logs",
        # Without a limit of its own a node that hangs would hold the others for as long as the partition allows.
        options={"time": str(minutes), **options, "no-kill": True},
        srun_args=("--no-kill", "--kill-on-bad-exit=0", *job.launch.slurm.srun_args),
        setup=tuple(job.launch.slurm.setup),
        cpus=cpus_per_task(job, task.devices(job)),
        import_path=code,
        about=(f"{task.name} on {job.launch.nodes} nodes; results in {folder}.",),
    )


def _submit(task: MeasuringTask, composed: Composed, folder: Path) -> Submission:
    job = composed.job
    runs = Path(job.run.dir).expanduser().absolute()
    code = python_path(*snapshot_code(job, runs / ".code", without=runs))
    made = slurm_job(task, job, folder, code)
    (folder / "logs").mkdir(parents=True)
    script = folder / "job.sh"
    write_text(script, script_text(made))
    job_id = submit_script(script, owned=made.options)
    return Submission(
        number=1,
        job_id=job_id,
        script=str(script),
        submitted_at=time.time(),
        host=os.uname().nodename,
        nodes=made.nodes,
    )


def _wait(task: MeasuringTask, job: JobConfig, folder: Path, submission: Submission) -> int:
    look, hosts, beat = JobLook(word="unknown"), list[str](), Listener(folder)
    while True:
        code = task.show(folder)
        if code is not None:
            _let_go(submission)
            return code
        look, before = look_at([submission])[submission.job_id], look
        if (look.word, look.reason) != (before.word, before.reason):
            _say(f"job {submission.job_id}: {look.state.lower() or look.word} {look.reason or look.nodes}".rstrip())
        silent_s = beat.silent_s(time.monotonic()) if look.word == "running" else 0.0
        if look.word == "running":
            with suppress(ValueError):
                hosts = expand(look.nodes)
        why = _over(look, silent_s)
        if why is not None:
            # The file may have come between the two looks.
            code = task.show(folder)
            _let_go(submission)
            hung = hosts[0] if hosts and look.word == "running" else None
            return task.salvage(job, folder, hosts, why, hung) if code is None else code
        time.sleep(_LOOK_S)


def _over(look: JobLook, silent_s: float) -> str | None:
    """Return why nothing more is to be expected of the job."""
    if look.word in ("ended", "gone"):
        return f"the job ended without a report ({look.state.lower() or look.word})"
    if silent_s > STALE_S:
        return f"the first node gave no sign of life for {STALE_S:.0f} s"
    return None


def _let_go(submission: Submission) -> None:
    """Give a job some time to end, and cancel what is left of it: a silent node would hold the others."""
    end = time.monotonic() + _LEAVES_S
    while time.monotonic() < end and look_at([submission])[submission.job_id].live:
        time.sleep(0.2)
    with suppress(HostError):
        cancel(submission)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
