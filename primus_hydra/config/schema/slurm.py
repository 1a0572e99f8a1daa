"""What a job asks of Slurm. Every key is one option of sbatch, so that a sweep may vary any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class SlurmConfig:
    """Options of a submission; null leaves an option to the site's defaults."""

    partition: str | None = key(None, "Partition, or several separated by commas.")
    account: str | None = key(None, "Account that pays.")
    qos: str | None = key(None, "Quality of service.")
    time: str | None = key(None, "Time limit: minutes, HH:MM:SS or D-HH:MM:SS; null: the partition's default.")
    constraint: str | None = key(None, "Features that the nodes must have.")
    reservation: str | None = key(None, "Reservation to take the nodes from.")
    dependency: str | None = key(None, "When the job may start, as afterok:JOBID.")
    exclusive: bool = key(False, "Share the nodes with no other job.")
    nodelist: str | None = key(None, "Nodes that the job must have, as node[1-4]; never more than launch.nodes.")
    exclude: str | None = key(None, "Nodes that the job must not have.")
    cpus_per_task: int | None = key(
        None, "CPUs of a node's one task; null: on a CPU platform threads x ranks, elsewhere the site's default.", gt=0
    )
    mem: str | None = key(None, "Memory of a node, as 480G; 0 means all of it.")
    gpus_per_node: int | None = key(None, "GPUs to ask for on each node; null: one for each rank.", ge=0)
    gpu_type: str | None = key(None, "Type of GPU where the site names them, as mi300x.")
    gpu_option: Literal["gres", "gpus_per_node", "gpus_per_task", "none"] = key(
        "gres", "How the site wants GPUs to be asked for; none: not at all."
    )
    nice: int | None = key(None, "Lower the priority by this much.")
    job_name: str | None = key(None, "Name of the job; null: the run's name.")
    comment: str | None = key(None, "Comment of the job.")
    mail_user: str | None = key(None, "Who gets mail about the job.")
    mail_type: str | None = key(None, "Events to mail about, as END,FAIL.")
    requeue: bool = key(True, "Go back into the queue after a preemption, a lost node or the time limit.")
    max_requeues: int | None = key(None, "Requeues after which the job ends instead; null: no limit.", ge=0)
    signal_delay_s: int = key(90, "Ask the ranks to save this long before the time limit.", unit="s", gt=0, le=65535)
    setup: list[str] = key([], "Lines of shell to run before srun, as module load rocm; one that fails ends the job.")
    sbatch_args: dict[str, str | None] = key(
        {}, "More options of sbatch by name, without dashes; true gives an option that takes no value."
    )
    srun_args: list[str] = key([], "More arguments of srun, as --mpi=none.")
