"""What would be started, to the last argument: pure data that `task=plan` shows and the launcher executes.

Nothing is written and nothing is started here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from primus_hydra.config.layout import Layout
from primus_hydra.config.schema import JobConfig, TimeoutsConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import Problem, raise_all
from primus_hydra.host.topology import Topology
from primus_hydra.launch.binding import Binding, bind_ranks
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.grace import in_slurm
from primus_hydra.launch.container import Containment
from primus_hydra.launch.determinism import determinism_variables
from primus_hydra.launch.environment import EnvVariable, environment_problems, rank_environment
from primus_hydra.launch.outer import OuterLaunch, check_world
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.spec import NODE_VARIABLE, AttemptSpec

RANK_MODULE = "primus_hydra.runtime.rank"
AGENT_MODULE = "primus_hydra.launch.agent"

_BY_AGENT = "chosen by torch's agent at start"


@dataclass(frozen=True, kw_only=True)
class BackendFacts:
    """What the parent found out about the backend: the adapter's `detect_backend_version` and `env_defaults`."""

    version: str
    commit: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RankPlan:
    """One rank: its command, the variables that it does not share with the others, and its CPUs if it is bound."""

    rank: int
    node: int
    argv: tuple[str, ...]
    environment: tuple[EnvVariable, ...]
    cpus: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Everything that the launcher needs.

    `argv` is the one process that the launcher starts: torch's agent, which starts the ranks; or the rank itself, where
    there is nothing for an agent to do (`how` is `rank`), also under an outer launcher (`joined`). `ranks` are all
    ranks of the job; `watched` are those that end up under this launcher, on node number `node`. `binding` says why
    ranks have the CPUs that they have.
    """

    how: Literal["agent", "rank", "joined"]
    argv: tuple[str, ...]
    environment: tuple[EnvVariable, ...]
    ranks: tuple[RankPlan, ...]
    watched: tuple[int, ...]
    spec: AttemptSpec
    binding: Binding
    timeouts: TimeoutsConfig = field(default_factory=TimeoutsConfig)
    node: int = 0
    container: Containment | None = None

    @property
    def started(self) -> tuple[str, ...]:
        """The command that the launcher starts: `argv`, or the container around it."""
        return self.container.argv if self.container is not None else self.argv

    def variables(self) -> dict[str, str]:
        """Return what the started process exports, over the caller's environment."""
        shared = {variable.name: variable.value for variable in self.environment}
        if self.spec.layout.nodes > 1 and not self.spec.joined:
            shared[NODE_VARIABLE] = str(self.node)
        if self.how == "agent":
            return shared
        own = next(rank for rank in self.ranks if rank.rank == self.watched[0])
        return shared | {variable.name: variable.value for variable in own.environment}


def plan_launch(
    job: JobConfig,
    layout: Layout,
    *,
    paths: RunPaths,
    attempt: int,
    data: PreparedData | None,
    resume_from: int | None,
    backend: BackendFacts,
    inherited: Mapping[str, str],
    cores: int,
    python: Sequence[str],
    topology: Topology | None = None,
    outer: OuterLaunch | None = None,
    cluster: ClusterNode | None = None,
    network: Sequence[EnvVariable] = (),
    hooks: Sequence[EnvVariable] = (),
) -> LaunchPlan:
    """Plan one attempt on this machine, inside an outer launch, or on the first node of a cluster's job.

    `inherited` is the caller's environment, `cores` what this node may use, `python` the interpreter's command,
    `topology` where the node's cores and the visible GPUs of the platform sit (None: ranks are not bound), `network`
    the variables of this node's network, `hooks` those that hooks have set.
    Raises UserError with every problem: several nodes without a cluster or an outer launcher, another number of nodes
    or ranks than was started, variables that belong to the launcher.
    """
    problems = environment_problems(job)
    if outer is None and (cluster.nodes if cluster else 1) != layout.nodes:
        problems.append(needs_cluster(layout) if cluster is None else _other_nodes(layout, cluster))
    raise_all(problems)
    job = job if cluster is None else in_slurm(job)
    if outer is not None:
        check_world(outer, layout)
    ranks_on_node = outer.local_world_size if outer else layout.ranks_per_node
    binding = bind_ranks(
        job.launch.bind,
        topology,
        ranks=ranks_on_node,
        on_gpus=not job.platform.is_cpu,
        joined=outer is not None,
    )
    environment = rank_environment(
        job,
        run_dir=str(paths.root),
        attempt=attempt,
        ranks_on_node=ranks_on_node,
        single_node=outer.single_node if outer else layout.nodes == 1,
        cores=cores,
        bound_cores=binding.cores,
        backend_env=backend.env,
        inherited=inherited,
        asked=(*determinism_variables(job.determinism, job.platform.vendor), *network),
        hooks=hooks,
    )
    # Ranks export the spec's variables again, on every node: what holds on this one only must not be among them.
    for_all = [variable for variable in environment if not variable.own or outer is not None or layout.nodes == 1]
    spec = AttemptSpec(
        run_dir=str(paths.root),
        attempt=attempt,
        layout=layout,
        data=data,
        resume_from=resume_from,
        backend_version=backend.version,
        backend_commit=backend.commit,
        max_restarts=job.launch.max_restarts,
        backoff_s=job.launch.backoff_s,
        stop_grace_s=job.launch.stop_grace_s,
        joined=outer is not None,
        start=job.launch.start,
        cpus=binding.cpus,
        environment={variable.name: variable.value for variable in for_all},
    )
    plan = _assemble(spec, tuple(environment), binding, tuple(python), outer, cluster)
    return replace(plan, timeouts=job.launch.timeouts)


def plan_node(
    spec: AttemptSpec,
    job: JobConfig,
    cluster: ClusterNode,
    *,
    python: Sequence[str],
    environment: Sequence[EnvVariable] = (),
) -> LaunchPlan:
    """Plan the part of an attempt that runs on another node than the first, which made the spec.

    `environment` is what this node adds of its own.
    """
    shared = [EnvVariable(name=name, value=value, reason="the spec") for name, value in spec.environment.items()]
    binding = Binding(cpus=spec.cpus, reason="decided on the first node")
    plan = _assemble(spec, (*shared, *environment), binding, tuple(python), None, cluster)
    return replace(plan, timeouts=job.launch.timeouts)


def _assemble(
    spec: AttemptSpec,
    environment: tuple[EnvVariable, ...],
    binding: Binding,
    python: tuple[str, ...],
    outer: OuterLaunch | None,
    cluster: ClusterNode | None,
) -> LaunchPlan:
    path = str(spec.attempt_paths.spec)
    rank_argv = (*python, "-m", RANK_MODULE, path)
    how = _how(spec, outer)
    meeting = (cluster.master, str(cluster.agents_port)) if cluster and cluster.nodes > 1 else ()
    node, per_node = cluster.index if cluster else 0, spec.layout.ranks_per_node
    here = range(node * per_node, (node + 1) * per_node)
    return LaunchPlan(
        how=how,
        argv=(*python, "-m", AGENT_MODULE, path, *meeting) if how == "agent" else rank_argv,
        environment=environment,
        ranks=tuple(_rank(rank, spec, rank_argv, how, outer, cluster) for rank in range(spec.world_size)),
        watched=(outer.rank,) if outer else tuple(here),
        spec=spec,
        binding=binding,
        node=node,
    )


def _how(spec: AttemptSpec, outer: OuterLaunch | None) -> Literal["agent", "rank", "joined"]:
    if outer is not None:
        return "joined"
    # One rank that is never restarted needs no agent, whose import of torch costs as long as the rank's own.
    return "rank" if spec.world_size == 1 and spec.max_restarts == 0 else "agent"


def _rank(
    rank: int,
    spec: AttemptSpec,
    argv: tuple[str, ...],
    how: str,
    outer: OuterLaunch | None,
    cluster: ClusterNode | None,
) -> RankPlan:
    layout = spec.layout
    node, local_rank = divmod(rank, layout.ranks_per_node)
    if outer is not None:
        address, port, reason = outer.master_addr, str(outer.master_port), "given by the outer launcher"
    elif how == "agent":
        address = cluster.master if cluster and cluster.nodes > 1 else "127.0.0.1"
        port, reason = "0", _BY_AGENT
    else:
        address, port, reason = "127.0.0.1", "0", "one rank: its store takes any free port"
    values = {
        "RANK": (str(rank), "position among all ranks"),
        "LOCAL_RANK": (str(local_rank), "position on its node"),
        "WORLD_SIZE": (str(layout.world_size), "ranks of the job"),
        "LOCAL_WORLD_SIZE": (str(layout.ranks_per_node), "ranks on its node"),
        "MASTER_ADDR": (address, reason),
        "MASTER_PORT": (port, reason),
    }
    if outer is not None and rank == outer.rank:
        values |= {name: (value, "given by the outer launcher") for name, value in outer.variables.items()}
    variables = (EnvVariable(name=name, value=value, reason=why) for name, (value, why) in values.items())
    cpus = spec.cpus[local_rank] if spec.cpus else None
    return RankPlan(rank=rank, node=node, argv=argv, environment=tuple(variables), cpus=cpus)


def _other_nodes(layout: Layout, cluster: ClusterNode) -> Problem:
    what = f"the job has {layout.nodes} node(s), and {cluster.nodes} were allocated: {', '.join(cluster.hosts)}"
    return Problem(key="launch.nodes", what=what, hint="allocate as many nodes as the job has")


def needs_cluster(layout: Layout) -> Problem:
    """Return the problem of a job of several nodes that neither a cluster nor an outer launcher started."""
    return Problem(
        key="launch.nodes",
        what=f"{layout.nodes} nodes cannot be started from this machine alone",
        hint="start through a cluster (hydra/launcher=submitit), or join one process per rank from torchrun or srun",
    )
