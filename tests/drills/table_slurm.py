"""Faults of a run in Slurm: two nodes with a rank each, of a real Slurm with four, by the command that users type."""

from __future__ import annotations

import functools

from tests.drills import slurm_injections as made
from tests.drills.fault import BACKENDS, Expect, Fault
from tests.drills.injections import IN_SAVE, IN_STEP
from tests.drills.scene import Act

_ONE = ("megatron",)
"""Where the backend makes no difference: the faults lie outside the ranks."""
_SPOT = ("launch.slurm.partition=spot",)
_USER_SIGNAL = "SlurmctldParameters=preempt_send_user_signal"
_DONE = Expect(code=0, word="finished", says=r"^done: 12 steps", job="COMPLETED")
_AGAIN = Expect(code=0, word="finished", says=r"went back into the queue", begins=2, job="COMPLETED")
_EXIT_7 = Act(name="exit", place="data", step=5, how="exit", rank=1, code=7)
_FAILED = Expect(code=7, word="failed", says=r"rank 1 ended with exit code 7", job="FAILED")

_survives = functools.partial(Fault, on_slurm=True, first=_AGAIN, second=None)
_saves = functools.partial(_survives, resumes_after=None, acts=(IN_STEP,))

PREEMPTIONS = (
    _saves(
        name="slurm-preempted",
        kind="preemption",
        sentence="preemption without a warning (SIGTERM, then SIGKILL after KillWait)",
        made="a job of a better partition takes all nodes in step 5; no GraceTime, the step takes 4 s of KillWait's 10",
        overrides=_SPOT,
        before=made.grace(0),
        inject=made.saving(made.outrank, slow_s=4),
        backends=BACKENDS,
    ),
    _saves(
        name="slurm-preempted-grace",
        kind="preemption",
        sentence="preemption with a GraceTime (SIGTERM to the tasks)",
        made="a job of a better partition takes all nodes in step 5; GraceTime 20 s",
        overrides=_SPOT,
        before=made.grace(20),
        inject=made.saving(made.outrank),
        backends=_ONE,
    ),
    _saves(
        name="slurm-preempted-signal",
        kind="preemption",
        sentence="preemption with the job's own signal (preempt_send_user_signal)",
        made="a job of a better partition takes all nodes in step 5; GraceTime 20 s, SIGUSR2 comes at its beginning",
        overrides=_SPOT,
        before=made.grace(20, _USER_SIGNAL),
        inject=made.saving(made.outrank),
        backends=_ONE,
    ),
)

ENDS = (
    _saves(
        name="slurm-time-limit",
        kind="end",
        sentence="the time limit comes near",
        made="the limit is set to less than two minutes in step 5, with launch.slurm.signal_delay_s=110",
        overrides=("launch.slurm.time=60", "launch.slurm.signal_delay_s=110"),
        inject=made.near_the_limit,
        backends=_ONE,
    ),
    _survives(
        name="slurm-signal-in-hook",
        kind="end",
        sentence="the time limit comes near before any rank was started",
        made="SIGUSR2, as before the time limit, while a pre_launch hook is at work",
        overrides=("hooks.pre_launch=[{script: hook.sh}]",),
        before=made.long_hook,
        inject=made.on_cluster(made.signal_in_hook),
        resumes_after=0,
        backends=_ONE,
    ),
    _survives(
        name="slurm-signal-at-start",
        kind="end",
        sentence="the time limit comes near while the ranks are being started",
        made="SIGUSR2 to every process of the job, as soon as the first node starts its agent",
        inject=made.on_cluster(made.signal_at_start),
        resumes_after=None,
        backends=_ONE,
    ),
    _saves(
        name="slurm-requeued",
        kind="end",
        sentence="scontrol requeue",
        made="`scontrol requeue` in step 5",
        inject=made.saving(made.requeue),
        backends=_ONE,
    ),
    _saves(
        name="slurm-requeued-in-save",
        kind="end",
        sentence="scontrol requeue in a save",
        made="`scontrol requeue` when the files of step 6 are written but do not count yet",
        acts=(IN_SAVE,),
        inject=made.saving(made.requeue, IN_SAVE),
        backends=_ONE,
    ),
    _survives(
        name="slurm-requeued-stuck",
        kind="end",
        sentence="scontrol requeue of ranks that cannot save",
        made="`scontrol requeue` while rank 0 never ends its fifth step: SIGKILL comes after KillWait",
        acts=(IN_STEP,),
        inject=made.stuck(made.requeue),
        backends=_ONE,
    ),
    _survives(
        name="slurm-requeued-finished",
        kind="end",
        sentence="scontrol requeue of a run that is finished",
        made="`scontrol requeue` after the end",
        first=_DONE,
        mend=made.again_when_over("COMPLETED"),
        resumes_after=0,
        backends=_ONE,
    ),
    _survives(
        name="slurm-requeued-failed",
        kind="end",
        sentence="scontrol requeue of a run that failed",
        made="rank 1 leaves with code 7 in step 5; then `scontrol requeue`",
        acts=(_EXIT_7,),
        first=_FAILED,
        mend=made.again_when_over("COMPLETED"),
        second=Expect(code=0, word="finished", says=r"finished", begins=0),
        backends=_ONE,
    ),
    _saves(
        name="slurm-cancelled",
        kind="end",
        sentence="scancel",
        made="`scancel` in step 5",
        inject=made.saving(made.cancel),
        first=Expect(code=75, word="saved", says=r"stopped and saved at step", job="CANCELLED"),
        second=_DONE,
        backends=_ONE,
    ),
)

NODES = (
    _survives(
        name="slurm-node-down",
        kind="node",
        sentence="a node is taken down by an administrator",
        made="`scontrol update state=down` for the second node in step 5",
        acts=(IN_STEP,),
        inject=made.stuck(made.node_down(1)),
        backends=_ONE,
    ),
    _survives(
        name="slurm-first-node-down",
        kind="node",
        sentence="the first node is taken down by an administrator",
        made="`scontrol update state=down` for the first node in step 5",
        acts=(IN_STEP,),
        inject=made.stuck(made.node_down(0)),
        backends=_ONE,
    ),
    _survives(
        name="slurm-node-crashed",
        kind="node",
        sentence="a node crashes",
        made="SIGKILL to every process of the second node in step 5",
        acts=(IN_STEP,),
        inject=made.stuck(made.node_crash(1)),
        backends=BACKENDS,
    ),
    _survives(
        name="slurm-first-node-crashed",
        kind="node",
        sentence="the first node crashes",
        made="SIGKILL to every process of the first node in step 5",
        acts=(IN_STEP,),
        inject=made.stuck(made.node_crash(0)),
        backends=_ONE,
    ),
    _survives(
        name="slurm-link-cut",
        kind="node",
        sentence="the link of a node is cut, and heals after the requeue",
        made="the second node's link is down from step 5 until the next attempt has begun",
        acts=(IN_STEP,),
        inject=made.stuck(made.link_cut(1)),
        backends=_ONE,
    ),
    _survives(
        name="slurm-first-link-cut",
        kind="node",
        sentence="the link of the first node is cut, and heals after the requeue",
        made="the first node's link is down from step 5 until the next attempt has begun",
        acts=(IN_STEP,),
        inject=made.stuck(made.link_cut(0)),
        backends=_ONE,
    ),
    _survives(
        name="slurm-only-link-cut",
        kind="node",
        sentence="the link of a job's only node is cut, and heals after the requeue",
        made="both ranks on one node, whose link is down from step 5 until the next attempt has begun",
        acts=(IN_STEP,),
        inject=made.stuck(made.link_cut(0)),
        nodes=1,
        backends=_ONE,
    ),
)

HANGS = (
    _survives(
        name="slurm-hang",
        kind="hang",
        sentence="a rank of the second node that hangs",
        made="rank 1 sleeps when it asks for the samples of step 5; rank 0 waits for it in a collective",
        overrides=("launch.timeouts.step=8",),
        acts=(Act(name="hang", place="data", step=5, how="hang", rank=1),),
        first=Expect(code=100, word="failed", says=r"no progress .* in a step .*stuck: rank 1", job="FAILED"),
        mend=made.on_cluster(made.all_stacks),
        second=_DONE,
        backends=_ONE,
    ),
)

CONTROLLERS = (
    _survives(
        name="slurm-controller-away",
        kind="controller",
        sentence="slurmctld is away when the run ends",
        made="slurmctld is ended in step 5, and started again when the ranks are done",
        acts=(IN_STEP,),
        inject=made.on_cluster(made.restart_controller),
        first=_DONE,
        resumes_after=0,
        backends=_ONE,
    ),
    _saves(
        name="slurm-controller-away-at-requeue",
        kind="controller",
        sentence="slurmctld is away when the job would go back into the queue",
        made="SIGUSR2 in step 5, as before the time limit; slurmctld is away until 3 s after the save",
        inject=made.on_cluster(made.away_at_requeue),
        backends=_ONE,
    ),
    _survives(
        name="slurm-no-accounting",
        kind="controller",
        sentence="there is no accounting",
        made="AccountingStorageType=accounting_storage/none: sacct knows nothing; rank 1 leaves with code 7 in step 5",
        acts=(_EXIT_7,),
        first=_FAILED,
        second=_DONE,
        backends=_ONE,
    ),
    _survives(
        name="slurm-port-taken",
        kind="controller",
        sentence="the port where the nodes are to meet is taken",
        made="somebody listens there on the first host before the job begins",
        before=made.on_cluster(made.partition("down")),
        inject=made.on_cluster(made.take_meeting_port),
        first=_DONE,
        resumes_after=0,
        backends=_ONE,
    ),
)

SUBMITTERS = (
    _survives(
        name="slurm-no-sbatch",
        kind="submitter",
        sentence="sbatch is missing",
        made="the command is typed with a PATH that has nothing of Slurm",
        before=made.no_sbatch,
        first=Expect(code=3, word=None, says=r"sbatch is not installed", begins=0),
        mend=made.sbatch_again,
        second=_DONE,
        resumes_after=0,
        backends=_ONE,
    ),
    _survives(
        name="slurm-queue-full",
        kind="submitter",
        sentence="the queue is full",
        made="MaxJobCount is reached",
        before=made.on_cluster(made.full_queue),
        first=Expect(code=3, word=None, says=r"the queue takes no more jobs", begins=0),
        mend=made.on_cluster(made.roomy_queue),
        second=_DONE,
        resumes_after=0,
        backends=_ONE,
    ),
    _survives(
        name="slurm-partition-closed",
        kind="submitter",
        sentence="the partition takes no jobs",
        made="the partition's state is DRAIN",
        before=made.on_cluster(made.partition("drain")),
        first=Expect(code=2, word=None, says=r"launch\.slurm\.partition: sbatch refuses the job", begins=0),
        mend=made.on_cluster(made.partition("up")),
        second=_DONE,
        resumes_after=0,
        backends=_ONE,
    ),
    _survives(
        name="slurm-waits",
        kind="submitter",
        sentence="the job waits, and for what is shown",
        made="the partition's state is DOWN until the command and `task=runs` have shown the reason",
        before=made.on_cluster(made.partition("down")),
        inject=made.on_cluster(made.waits_then_runs),
        first=Expect(code=0, word="finished", says=r"waits: PartitionDown", job="COMPLETED"),
        resumes_after=0,
        backends=_ONE,
    ),
    _survives(
        name="slurm-submitter-killed",
        kind="submitter",
        sentence="kill -9 of the command that follows the job",
        made="SIGKILL to the command in step 5; its job goes on",
        acts=(IN_STEP,),
        inject=made.on_cluster(made.kill_submitter),
        first=Expect(code=-9, run_code=0, word="finished", says=r"runs on node", job="COMPLETED"),
        resumes_after=0,
        backends=_ONE,
    ),
)
