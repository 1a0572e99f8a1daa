"""What becomes of a job, asked of squeue and scontrol. Accounting is not needed; what cannot be asked is unknown.

A number is used again after a cluster was set up anew, so a job counts only if it runs the script that was submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from primus_hydra.run.submission import JobLook, JobWord, Submission
from primus_hydra.slurm.client import Answer, Call, call

_FORMAT = "%A|%T|%r|%N|%o"
_WORDS: dict[JobWord, str] = {
    "pending": "PENDING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD",
    "running": "RUNNING SUSPENDED STOPPED CONFIGURING RESIZING SIGNALING",
    "completing": "COMPLETING STAGE_OUT",
    "ended": "COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE PREEMPTED REVOKED",
}
_WORD_OF = {state: word for word, states in _WORDS.items() for state in states.split()}
_NO_SUCH_JOB = "invalid job id"
_JOB = re.compile(r"\bJobState=(?P<state>\S+) Reason=(?P<reason>\S+) .*? Restarts=(?P<restarts>\d+) ")
_EXIT = re.compile(r"\bExitCode=(\d+):(\d+) ")
_NODES = re.compile(r" NodeList=(\S+) ")
_NOTHING = frozenset({"None", "(null)", "N/A", ""})


def look_at(submissions: Iterable[Submission], ask: Call = call) -> dict[str, JobLook]:
    """Return what Slurm says of each job, by job id, with one question for all of them; no exit codes."""
    asked = {submission.job_id: submission for submission in submissions}
    if not asked:
        return {}
    answer = ask(["squeue", "--noheader", "--states=all", f"--jobs={','.join(asked)}", f"--format={_FORMAT}"])
    unheard = _unheard(answer)
    if unheard is not None:
        return dict.fromkeys(asked, unheard)
    rows = {row[0]: row for line in answer.out.splitlines() if len(row := line.split("|", 4)) == 5}
    return {job_id: _of_row(rows.get(job_id), submission) for job_id, submission in asked.items()}


def look_closely(submission: Submission, ask: Call = call) -> JobLook:
    """Return what Slurm says of one job, with its restarts and its exit code."""
    answer = ask(["scontrol", "--oneliner", "show", "job", submission.job_id])
    unheard = _unheard(answer)
    if unheard is not None:
        return unheard
    text = f"{answer.out.strip()} "
    found = _JOB.search(text)
    if found is None or f" Command={submission.script}" not in text:
        return JobLook(word="gone")
    code, nodes = _EXIT.search(text), _NODES.search(text)
    look = _look(found["state"], found["reason"], nodes[1] if nodes else "", restarts=int(found["restarts"]))
    ended = look.word == "ended" and code is not None
    return look if not ended or code is None else _with_code(look, int(code[1]), int(code[2]))


def state_and_restarts(shown: str) -> tuple[str, int] | None:
    """Return Slurm's own word for a job, and how often it was started again, as `scontrol --oneliner show job` says."""
    found = _JOB.search(shown)
    return None if found is None else (found["state"], int(found["restarts"]))


def _unheard(answer: Answer) -> JobLook | None:
    """Return what an answer without rows means; None for one with rows, or with none left."""
    if answer.code == 0:
        return None
    if _NO_SUCH_JOB in answer.words.lower():
        return JobLook(word="gone")
    return JobLook(word="unknown", reason=answer.words or "Slurm's programs are not installed on this machine")


def _of_row(row: Sequence[str] | None, submission: Submission) -> JobLook:
    if row is None or not row[4].startswith(submission.script):
        return JobLook(word="gone")
    return _look(row[1], row[2], row[3])


def _look(state: str, reason: str, nodes: str, restarts: int = 0) -> JobLook:
    return JobLook(
        word=_WORD_OF.get(state, "unknown"),
        state=state,
        reason="" if reason in _NOTHING else reason,
        nodes="" if nodes in _NOTHING else nodes,
        restarts=restarts,
    )


def _with_code(look: JobLook, code: int, signal: int) -> JobLook:
    return JobLook(
        word=look.word,
        state=look.state,
        reason=look.reason,
        nodes=look.nodes,
        restarts=look.restarts,
        exit_code=128 + signal if signal else code,
    )
