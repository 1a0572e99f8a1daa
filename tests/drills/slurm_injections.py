"""Faults of a job in Slurm, made with Slurm's own programs, or on the nodes and their links."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from primus_hydra.launch.cluster.allocation import meeting_port
from tests.drills.cluster_scene import ClusterScene
from tests.drills.injections import IN_STEP
from tests.drills.scene import Act, DrillError, Scene

NOTICE = "stopping after this step"
GONE_S = 90.0
"""How long a node that was cut off may take to notice: the kernel's questions to a silent peer, and its ranks' end."""
_LISTEN = "import socket, sys, time; s = socket.create_server(('', int(sys.argv[1]))); time.sleep(600)"

OnCluster = Callable[[ClusterScene], None]


def on_cluster(do: OnCluster) -> Callable[[Scene], None]:
    """Return a fault as a table holds it, for a scene that has a cluster."""

    def inject(scene: Scene) -> None:
        if not isinstance(scene, ClusterScene):
            raise DrillError("this fault needs a Slurm")
        do(scene)

    return inject


def saving(do: OnCluster, act: Act = IN_STEP, *, slow_s: float = 0.0) -> Callable[[Scene], None]:
    """Return a fault that comes while a rank is at a place; it goes on `slow_s` after its launcher has answered."""

    def inject(scene: ClusterScene) -> None:
        scene.wait_for(act.name)
        do(scene)
        scene.until(lambda: NOTICE in scene.said(), "the launcher on the first node has answered")
        time.sleep(slow_s)
        scene.release(act.name)

    return on_cluster(inject)


def stuck(do: OnCluster) -> Callable[[Scene], None]:
    """Return a fault that comes while a rank is in its fifth step, which it never ends."""

    def inject(scene: ClusterScene) -> None:
        scene.wait_for(IN_STEP.name)
        do(scene)

    return on_cluster(inject)


def grace(seconds: int, more: str = "") -> Callable[[Scene], None]:
    """Prepare a partition whose jobs are told to go so long before they must; `more` is text for slurm.conf."""

    def prepare(scene: ClusterScene) -> None:
        cluster = scene.cluster
        before = cluster.grace_s, cluster.more
        scene.undo.callback(_set_grace, scene, *before)
        _set_grace(scene, seconds, more)

    return on_cluster(prepare)


def _set_grace(scene: ClusterScene, seconds: int, more: str) -> None:
    scene.cluster.grace_s = seconds
    scene.cluster.configure(more)


def outrank(scene: ClusterScene) -> None:
    """Submit a job that takes all nodes and comes first."""
    scene.on_login("sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")


def requeue(scene: ClusterScene) -> None:
    """Put the job back into the queue by hand."""
    scene.on_login("scontrol", "requeue", scene.job)


def cancel(scene: ClusterScene) -> None:
    """Cancel the job by hand."""
    scene.on_login("scancel", scene.job)


def near_the_limit(scene: Scene) -> None:
    """Let the time limit come near in a step, and lift it when the job is in the queue again."""

    def shorten(scene: ClusterScene) -> None:
        hours, minutes, _ = map(int, scene.slurm("RunTime").split(":"))
        scene.on_login("scontrol", "update", f"jobid={scene.job}", f"timelimit={hours * 60 + minutes + 2}")

    def lift(scene: ClusterScene) -> None:
        scene.until(lambda: "went back into the queue" in scene.printed, "the job is in the queue again")
        scene.on_login("scontrol", "update", f"jobid={scene.job}", "timelimit=60")

    saving(shorten)(scene)
    on_cluster(lift)(scene)


def long_hook(scene: Scene) -> None:
    """Write a hook that takes as long as it is let."""
    hook = scene.folder / "hook.sh"
    hook.write_text("#!/bin/sh\ntouch hook.reached\nuntil [ -e hook.released ]; do sleep 0.1; done\n")
    hook.chmod(0o755)


def signal_in_hook(scene: ClusterScene) -> None:
    """Warn the job of its time limit while its hook is at work, and let the hook end when it runs again."""
    scene.wait_for("hook")
    scene.on_login("scancel", "--signal=USR2", scene.job)
    scene.until(lambda: "went back into the queue" in scene.printed, "the job is in the queue again")
    scene.release("hook")


def signal_at_start(scene: ClusterScene) -> None:
    """Warn the job of its time limit when its first rank is about to be started."""
    scene.until(scene.paths.attempt(1).spec.exists, "the ranks are about to be started")
    scene.on_login("scancel", "--signal=USR2", scene.job)


def again_when_over(state: str) -> Callable[[Scene], None]:
    """Put a job that has ended back into the queue, and wait until it has ended in that state."""

    def inject(scene: ClusterScene) -> None:
        requeue(scene)
        scene.wait(lambda: scene.slurm("Restarts") == "1", "the job is started again")
        scene.wait(lambda: scene.slurm("JobState") == state, f"the job is {state}")

    return on_cluster(inject)


def node_down(which: int) -> OnCluster:
    """Return what an administrator does who takes one of the job's nodes away."""

    def do(scene: ClusterScene) -> None:
        # With ReturnToService=2 the node comes back by itself as soon as its slurmd is heard of.
        node = scene.nodes()[which]
        scene.on_login("scontrol", "update", f"nodename={node}", "state=down", "reason=drill")

    return do


def node_crash(which: int) -> OnCluster:
    """Return the end of all processes of one of the job's nodes at once."""

    def do(scene: ClusterScene) -> None:
        node = scene.nodes()[which]
        scene.undo.callback(scene.cluster.boot, node)
        scene.cluster.crash(node)

    return do


def link_cut(which: int) -> OnCluster:
    """Return a link that is cut, and heals when the job has begun again elsewhere.

    What was at work on the node must have ended by itself by then: two attempts are never at work in a run.
    """

    def do(scene: ClusterScene) -> None:
        node = scene.nodes()[which]
        old = scene.cluster.processes(node) & set(scene.living())
        scene.undo.callback(scene.cluster.heal, node)
        scene.cluster.cut(node)
        scene.until(lambda: len(scene.paths.attempt_numbers()) > 1, "another attempt begins")
        at_work = [pid for pid in old if pid in scene.living() and _works(pid)]
        if at_work:
            raise DrillError(f"two attempts are at work: {at_work} on {node} are still there")
        scene.cluster.heal(node)
        # Slurm compares what its nodes have with what they should, now and then: here at once.
        scene.wait(lambda: node in scene.cluster.ready(), f"{node} is back", GONE_S)
        scene.cluster.run("scontrol", "reconfigure")
        scene.wait(lambda: not old & set(scene.living()), f"Slurm ends what waits for its end on {node}", GONE_S)

    return do


def _works(pid: int) -> bool:
    """Whether a process is a rank, or what they are forked from: others only wait, or tell how it ended."""
    try:
        return b"primus_hydra.runtime" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def restart_controller(scene: ClusterScene) -> None:
    """Take slurmctld away, let the run end without it, and bring it back."""
    scene.wait_for(IN_STEP.name)
    scene.undo.callback(_controller, scene)
    scene.cluster.stop_controller()
    scene.release(IN_STEP.name)
    scene.until(lambda: scene.paths.attempt(1).ended.exists(), "the run ends without slurmctld")
    _controller(scene)


def _controller(scene: ClusterScene) -> None:
    if not scene.cluster.has_controller:
        scene.cluster.start_controller()


def away_at_requeue(scene: ClusterScene) -> None:
    """Take slurmctld away when the ranks are told to save, and bring it back when they have."""
    scene.wait_for(IN_STEP.name)
    scene.on_login("scancel", "--signal=USR2", scene.job)
    scene.until(lambda: NOTICE in scene.said(), "the launcher on the first node has answered")
    scene.undo.callback(_controller, scene)
    scene.cluster.stop_controller()
    scene.release(IN_STEP.name)
    scene.until(lambda: scene.paths.attempt(1).ended.exists(), "the ranks have saved")
    time.sleep(3)
    _controller(scene)


def all_stacks(scene: ClusterScene) -> None:
    """See that the ranks of both nodes have left their stacks, and that the one that hangs shows where."""
    stacks = [scene.paths.attempt(1).stacks(rank) for rank in range(2)]
    if missing := [str(path) for path in stacks if not path.exists()]:
        raise DrillError(f"no stacks were left: {', '.join(missing)}")
    if "_hang" not in stacks[1].read_text(encoding="utf-8"):
        raise DrillError(f"the stack of rank 1 is not that of a rank that hangs:\n{stacks[1].read_text()}")


def no_sbatch(scene: Scene) -> None:
    """Leave nothing of Slurm on the path."""
    empty = scene.folder / "bin"
    empty.mkdir()
    scene.variables["PATH"] = str(empty)


def sbatch_again(scene: Scene) -> None:
    """Let the path be the login node's again."""
    del scene.variables["PATH"]


def full_queue(scene: ClusterScene) -> None:
    """Let slurmctld keep one job at most, and give it that one."""
    scene.undo.callback(roomy_queue, scene)
    _restart_with(scene, "MaxJobCount=2")
    for _ in range(2):
        subprocess.run(
            scene.cluster.argv(["timeout", "3", "sbatch", "--hold", "--output=/dev/null", "--wrap=true"]),
            env=scene.cluster.environment,
            capture_output=True,
            check=False,
        )


def roomy_queue(scene: ClusterScene) -> None:
    """Let slurmctld keep many jobs again."""
    if scene.cluster.more:
        scene.cluster.cancel_all()
        _restart_with(scene, "")


def _restart_with(scene: ClusterScene, more: str) -> None:
    scene.cluster.configure(more)
    scene.cluster.stop_controller()
    scene.cluster.start_controller()
    scene.cluster.wait_idle()


def partition(state: str) -> OnCluster:
    """Return a change of the partition's state."""

    def do(scene: ClusterScene) -> None:
        scene.undo.callback(_partition, scene, "up")
        _partition(scene, state)

    return do


def _partition(scene: ClusterScene, state: str) -> None:
    scene.on_login("scontrol", "update", "partitionname=main", f"state={state}")


def waits_then_runs(scene: ClusterScene) -> None:
    """See the job wait, and with it what `task=runs` says; then let it run."""
    scene.until(lambda: "PartitionDown" in scene.printed, "the reason is shown")
    word = scene.word()
    shown = scene.on_login(sys.executable, "-m", "primus_hydra", "task=runs", "task.run=drill", env=scene.environment())
    if word != "queued" or "PartitionDown" not in shown:
        raise DrillError(f"task=runs calls a run that waits {word!r}:\n{shown}")
    _partition(scene, "up")


def take_meeting_port(scene: ClusterScene) -> None:
    """Listen on the first host at the port where the nodes are to meet, before the job begins."""
    port = meeting_port(scene.job, 0)
    process = subprocess.Popen(
        scene.cluster.argv([sys.executable, "-c", _LISTEN, str(port)], host="node1"), env=scene.cluster.environment
    )
    scene.undo.callback(process.wait)
    scene.undo.callback(process.kill)
    _partition(scene, "up")


def kill_submitter(scene: ClusterScene) -> None:
    """Kill the command, and wait until its job has ended without it."""
    scene.wait_for(IN_STEP.name)
    if scene.command is None:
        raise DrillError("nothing was typed")
    os.kill(scene.command.process.pid, signal.SIGKILL)
    scene.command.process.wait()
    scene.release(IN_STEP.name)
    scene.wait(lambda: scene.slurm("JobState") == "COMPLETED", "the job ends without its submitter")
