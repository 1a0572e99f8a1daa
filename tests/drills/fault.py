"""What a fault is: how it is made, and what must hold while it happens and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.drills.scene import Act, Scene, Typed

Kind = Literal["death", "signal", "hang", "failure", "memory", "checkpoint", "disk", "refusal", "clock", "pipe"]
ClusterKind = Literal["preemption", "end", "node", "controller", "submitter"]
"""What happens to a job in Slurm; `end`: somebody or something ends it, a time limit, a requeue, a cancel."""
BACKENDS = ("torchtitan", "megatron")
Inject = Callable[[Scene], None]


@dataclass(frozen=True, kw_only=True)
class Expect:
    """The end of one command.

    `code` is its exit code (negative for a signal), `word` how `task=runs` calls the run then (None: there is no run),
    `says` a pattern of a line that the user sees. `begins` is how many attempts begin. `run_code` is the code that the
    run tells where the command could not, and `job` is Slurm's word for its job then, where it has one.
    """

    code: int
    word: str | None
    says: str
    restarts: int = 0
    begins: int = 1
    run_code: int | None = None
    job: str | None = None


FINISHED = Expect(code=0, word="finished", says=r"^done: 12 steps")
ONE_RESTART = ("launch.max_restarts=1",)
RESTARTED = Expect(code=0, word="finished", says=r"^attempt 1, restart 1: training goes on with step", restarts=1)
GOES_ON = Expect(code=0, word="finished", says=r"^going on from the checkpoint at step")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a run.

    `made` says how it is made. `before` prepares the scene, `acts` happen inside ranks, `inject` happens outside while
    the first command runs, `mend` between it and the second one, which is the same. `resumes_after` is the saved step
    that training must go on from; None: from the last step that the stop has saved. `aside` is what another command of
    the drill must have come to. `pipe` is what the command's output is piped into.
    `on_slurm` says that the command submits the run to a Slurm of four nodes; `nodes` is how many the job has.
    """

    name: str
    kind: Kind | ClusterKind
    sentence: str
    made: str
    first: Expect
    second: Expect | None = GOES_ON
    resumes_after: int | None = 3
    overrides: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    before: Inject | None = None
    inject: Callable[[Scene], Typed | None] | None = None
    mend: Inject | None = None
    aside: Expect | None = None
    pipe: str | None = None
    needs_mounts: bool = False
    on_slurm: bool = False
    nodes: int = 2
    backends: tuple[str, ...] = BACKENDS
