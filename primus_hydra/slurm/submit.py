"""Giving a script to sbatch, and what it means when it is not taken.

What the user can change (an option that Slurm refuses) is the user's problem, with sbatch's own words; the rest is the
machine's: no sbatch, no controller, a full queue.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from submitit.core.utils import FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from primus_hydra.errors import HostError, PrimusError, Problem, UserError
from primus_hydra.slurm.client import Answer, Call, call
from primus_hydra.slurm.options import NODE, OF_KEYS

LAUNCHER = "hydra/launcher"
_FULL = re.compile(
    r"MaxSubmit|MaxJobs|job limit|maximum (job|number)|limit.*(exceeded|reached)|queue is full|"
    r"temporarily unable to accept",
    re.IGNORECASE,
)
_POLICY = re.compile(r"accounting/QOS policy|not permitted|access/permission denied", re.I)
_KEYS = (
    (r"account", "account"),
    (r"partition", "partition"),
    (r"\bqos\b", "qos"),
    (r"time( limit|_limit)?\b|--time", "time"),
    (r"feature", "constraint"),
    (r"reservation", "reservation"),
    (r"dependency", "dependency"),
    (r"node name|node list", "nodelist"),
    (r"memory", "mem"),
    (r"gres|gpu", "gpu_option"),
    (r"cpu count|cpus-per-task", "cpus_per_task"),
    (r"mail", "mail_type"),
)
_VARIABLES = {"time": "timelimit", "mem": "mem_per_node", "no-requeue": "requeue", "requeue": "no_requeue"}
"""Options whose variable has another name, or a counterpart that would undo them."""
_ALWAYS = ("job-name", "output", "error", "export", "open-mode", "array-inx", "wait")
_UNKNOWN_OPTION = re.compile(r"(?:unrecognized option|invalid option|ambiguous).*?'?--([a-z][a-z0-9-]*)")
_NODES = re.compile(r"node count|node configuration is not available|more processors")


def refuse_without_slurm() -> None:
    """Raise HostError where nothing can be submitted from."""
    if shutil.which("sbatch") is None:
        raise HostError(_missing())


def submit_script(script: Path, *, owned: Iterable[str] = (), ask: Call | None = None) -> str:
    """Submit a script and return the number of its job.

    `owned` are the options that the script sets: what the shell says of the same ones (SBATCH_PARTITION) would win.
    Raises UserError or HostError with sbatch's own words.
    """
    answer = (ask or _without(owned))(["sbatch", str(script)])
    if answer.code != 0:
        raise _refusal(answer)
    try:
        return str(SlurmExecutor._get_job_id_from_submission_command(answer.out))
    except FailedSubmissionError:
        what = f"sbatch took the script, and its answer names no job: {answer.out.strip()!r}"
        raise HostError(Problem(key=LAUNCHER, what=what, hint="squeue --me shows whether the job is there")) from None


def _without(owned: Iterable[str]) -> Call:
    """Return a call that hides from sbatch what the shell says of options that the script sets."""
    hidden = {f"SBATCH_{_VARIABLES.get(name, name).replace('-', '_').upper()}" for name in (*owned, *_ALWAYS)}
    environ = {name: value for name, value in os.environ.items() if name not in hidden}

    def ask(argv: Sequence[str]) -> Answer:
        return call(argv, environ)

    return ask


def _refusal(answer: Answer) -> PrimusError:
    words = answer.words or answer.out.strip()
    if answer.missing:
        return HostError(_missing())
    if _FULL.search(words):
        hint = "wait until jobs of yours have ended, or choose another launch.slurm.qos or account"
        return HostError(Problem(key=LAUNCHER, what=f"the queue takes no more jobs: {words}", hint=hint))
    if answer.unreachable:
        hint = "nothing was submitted as far as one can see; squeue --me shows it, and the same command tries again"
        return HostError(Problem(key=LAUNCHER, what=f"Slurm does not answer: {words}", hint=hint))
    if _POLICY.search(words):
        return HostError(Problem(key=LAUNCHER, what=f"Slurm does not allow this job: {words}"))
    key = _key_of(words)
    hint = "sinfo shows partitions, nodes and their features; sbatch --help shows the options"
    return UserError(Problem(key=key, what=f"sbatch refuses the job: {words}", hint=hint))


def _key_of(words: str) -> str:
    """Return the key that sbatch's words are about, as near as one can tell."""
    if unknown := _UNKNOWN_OPTION.search(words):
        name = unknown[1]
        return f"{NODE}.{OF_KEYS[name]}" if name in OF_KEYS else f"{NODE}.sbatch_args"
    if _NODES.search(words):
        return "launch.nodes"
    found = next((key for form, key in _KEYS if re.search(form, words, re.IGNORECASE)), None)
    return NODE if found is None else f"{NODE}.{found}"


def _missing() -> Problem:
    what = "sbatch is not installed here, so nothing can be submitted to Slurm"
    return Problem(key=LAUNCHER, what=what, hint="type the command on a login node, or leave hydra/launcher out")
