"""What each node of a job finds for itself: the variables of its network, and those of its own hooks.

The first node decides everything else for all. A node whose `pre_train` hooks fail starts no rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from primus_hydra.config.schema import JobConfig
from primus_hydra.hooks.entry import Phase, read_hooks
from primus_hydra.hooks.record import read_values
from primus_hydra.hooks.runner import HookRunner, PhaseEnd
from primus_hydra.host.network import address_of, read_network
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.environment import EnvVariable, hook_variables, mask_variables, own_environment
from primus_hydra.launch.network import network_variables
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.spec import AttemptSpec


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What the hooks before the ranks came to: variables for the ranks, or the end of the launch."""

    variables: tuple[EnvVariable, ...] = ()
    refusal: LaunchResult | None = None


def node_network(job: JobConfig, node: ClusterNode) -> list[EnvVariable]:
    """Return the network variables of this very node of a job; raises HostError with what the node lacks."""
    other = next((host for host in node.hosts if host != node.host), None)
    return network_variables(
        job.network,
        read_network(),
        node.nodes,
        peer=address_of(other) if other is not None else None,
        on_gpus=not job.platform.is_cpu,
    )


def prepare_node(
    spec: AttemptSpec,
    job: JobConfig,
    node: ClusterNode,
    *,
    inherited: Mapping[str, str],
    python: Sequence[str],
    say: Callable[[str], None] = lambda _: None,
) -> Prepared:
    """Run the `pre_train` hooks of a node that is not the first; return what this node adds to the spec's environment.

    `inherited` is the environment of this node's launcher, `python` the interpreter's command. Raises HostError for a
    network that the node cannot serve.
    """
    network = node_network(job, node)
    runner = HookRunner(
        read_hooks(job.hooks)[0],
        paths=spec.paths,
        attempt=spec.attempt,
        environment=inherited,
        job_environment=job.env,
        python=python,
        node=node.index,
        nodes=node.nodes,
        say=say,
    )
    end = runner.run("pre_train", read_values(spec.attempt_paths.hooks(0), "pre_launch"))
    refusal = refusal_of(end, "pre_train", spec.paths, node.index)
    if refusal is not None:
        return Prepared(refusal=refusal)
    own = [*network, *mask_variables(job, inherited, own=True), *hook_variables(end.values, own=True)]
    return Prepared(variables=tuple(own_environment(own, shared=spec.environment, inherited=inherited)))


def refusal_of(end: PhaseEnd, phase: Phase, paths: RunPaths, node: int = 0) -> LaunchResult | None:
    """Return the end of a launch that a phase of hooks stopped; None if it goes on."""
    if not end.failed and end.signal is None:
        return None
    why = "; ".join(hook.describe() for hook in end.failed) or f"stopped after a {phase} hook"
    return LaunchResult(
        exit_code=end.exit_code,
        message=f"no rank was started: {why}",
        log=paths.hooks_log(node),
        signal=end.signal,
    )
