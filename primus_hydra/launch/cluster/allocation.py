"""Who this process is among the nodes of a Slurm job: one task per node, numbered as the allocation lists them.

The nodes meet at the first host, at a port that follows from the job and how often it was started, so that nothing of
an earlier start can answer there. Refused: a step with another number of tasks than nodes, and a `MASTER_ADDR` that
somebody set to another host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.errors import HostError, Problem, UserError, raise_all
from primus_hydra.launch.cluster.nodelist import expand

_LOWEST_PORT, _HIGHEST_PORT = 10_000, 32_000
"""Above what services use; the kernel's default range for outgoing connections begins at 32,768."""
_PORTS_PER_START = 2
_OTHER_CHOICES = (1, 2, 3)
_LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """One node of the job: `index` among `hosts`, of start number `restart` of job `job_id`.

    `port` is where the nodes' launchers meet at the first host, `agents_port` where their agents do; `other_ports` are
    those to take if somebody else listens at `port`.
    """

    job_id: str
    restart: int
    index: int
    hosts: tuple[str, ...]
    port: int
    other_ports: tuple[int, ...] = ()

    @property
    def ports(self) -> tuple[int, ...]:
        """Where the launchers may meet, best first."""
        return (self.port, *self.other_ports)

    @property
    def nodes(self) -> int:
        """How many nodes the job has."""
        return len(self.hosts)

    @property
    def master(self) -> str:
        """The host at which all meet: the first."""
        return self.hosts[0]

    @property
    def host(self) -> str:
        """The name of this node."""
        return self.hosts[self.index]

    @property
    def is_main(self) -> bool:
        """Whether this node decides for all."""
        return self.index == 0

    @property
    def agents_port(self) -> int:
        """Where the agents of all nodes meet, at the first host."""
        return self.port + 1

    @property
    def run_id(self) -> str:
        """The name of this start of the job, which no other has."""
        return f"{self.job_id}.{self.restart}"


def cluster_node(environ: Mapping[str, str], local_range: Path = _LOCAL_RANGE) -> ClusterNode:
    """Return which node of its job this process is; raises HostError outside a step, UserError for a wrong one."""
    missing = [name for name in ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NNODES") if not environ.get(name)]
    nodelist = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    if missing or not nodelist:
        what = f"{', '.join(missing) or 'the list of nodes'} is not set"
        raise HostError(Problem(what=f"this is no task of a Slurm step: {what}", hint="it is started by srun"))
    hosts = _hosts(nodelist)
    raise_all([*_task_problems(environ, hosts), *_master_problems(environ, hosts)])
    job_id, restart = environ["SLURM_JOB_ID"], _number(environ, "SLURM_RESTART_COUNT")
    lowest = _first_local_port(local_range)
    return ClusterNode(
        job_id=job_id,
        restart=restart,
        index=_number(environ, "SLURM_PROCID"),
        hosts=hosts,
        port=meeting_port(job_id, restart, lowest),
        other_ports=tuple(meeting_port(job_id, restart, lowest, choice=choice) for choice in _OTHER_CHOICES),
    )


def meeting_port(job_id: str, restart: int, first_local_port: int = _HIGHEST_PORT, *, choice: int = 0) -> int:
    """Return a port of a start, below those that the kernel gives to outgoing connections."""
    highest = max(_LOWEST_PORT + _PORTS_PER_START, min(first_local_port, _HIGHEST_PORT))
    digest = hashlib.sha256(f"{job_id}.{restart}{'+' * choice}".encode()).digest()
    places = (highest - _LOWEST_PORT) // _PORTS_PER_START
    return _LOWEST_PORT + int.from_bytes(digest[:8], "big") % places * _PORTS_PER_START


def _hosts(nodelist: str) -> tuple[str, ...]:
    try:
        return tuple(expand(nodelist))
    except ValueError as error:
        raise UserError(Problem(key="SLURM_JOB_NODELIST", what=str(error))) from error


def _task_problems(environ: Mapping[str, str], hosts: tuple[str, ...]) -> list[Problem]:
    tasks = _number(environ, "SLURM_NTASKS") or len(hosts)
    if tasks == len(hosts) == _number(environ, "SLURM_NNODES"):
        return []
    what = f"{tasks} tasks were started on {len(hosts)} nodes, and each node takes one"
    return [Problem(key="SLURM_NTASKS", what=what, hint="srun --ntasks-per-node=1; the task starts the node's ranks")]


def _master_problems(environ: Mapping[str, str], hosts: tuple[str, ...]) -> list[Problem]:
    said = environ.get("MASTER_ADDR")
    if not said or said.partition(".")[0] == hosts[0].partition(".")[0]:
        return []
    what = f"it is {said}, but the first host of the allocation is {hosts[0]}: the ranks would wait for another job's"
    return [Problem(key="MASTER_ADDR", what=what, hint="unset it, also in files that the shell reads at its start")]


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        raise UserError(Problem(key=name, what=f"{text!r} is no whole number")) from None


def _first_local_port(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST_PORT
