"""Slurm's programs as functions, and what they said on a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from primus_hydra.run.submission import Submission
from primus_hydra.slurm.client import Answer

SCRIPT = "/runs/mine/submissions/1/script.sh"
AWAY = Answer(code=1, words="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
NO_SUCH_JOB = Answer(code=1, words="slurm_load_jobs error: Invalid job id specified")
SHOWN = (
    "JobId=12 JobName=mine UserId=root(0) Priority=133 Nice=0 Account=(null) QOS=(null) "
    "JobState={state} Reason={reason} "
    "Dependency=(null) Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode={code} RunTime=00:00:01 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList={nodes} BatchHost=node1 NumNodes=2 Command={script} WorkDir=/work\n"
)


def submission(job_id: str = "12", submitted_at: float = 100.0) -> Submission:
    """Return a job that was submitted."""
    return Submission(
        number=1, job_id=job_id, script=SCRIPT, submitted_at=submitted_at, host="login", nodes=2, code=None
    )


def shown(
    state: str, *, reason: str = "None", code: str = "0:0", nodes: str = "node[1-2]", restarts: int = 0
) -> Answer:
    """Return what `scontrol show job` prints."""
    text = SHOWN.format(state=state, reason=reason, code=code, nodes=nodes, restarts=restarts, script=SCRIPT)
    return Answer(code=0, out=text)


def listed(*rows: tuple[str, str, str, str]) -> Answer:
    """Return what squeue prints of jobs: number, state, reason, nodes."""
    return Answer(code=0, out="".join("|".join((*row, SCRIPT)) + "\n" for row in rows))


def says(answer: Answer) -> Callable[[Sequence[str]], Answer]:
    """Return a call that always gets the same answer."""
    return lambda argv: answer
