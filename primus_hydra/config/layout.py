"""The layout of a job over ranks: how many start, and how the global batch is cut. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Numbers that follow from the parallel sizes, the batch sizes and the machine."""

    nodes: int
    ranks_per_node: int
    tp: int
    pp: int
    cp: int
    ep: int
    dp_shard: int
    dp_replicate: int
    micro_batch_size: int
    global_batch_size: int

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.nodes * self.ranks_per_node

    @property
    def dp(self) -> int:
        """Data-parallel degree: ranks that see different samples."""
        return self.dp_shard * self.dp_replicate

    @property
    def microbatches(self) -> int:
        """Microbatches of one data-parallel rank per optimizer step, by accumulation or by the pipeline."""
        return self.global_batch_size // (self.micro_batch_size * self.dp)


def layout_of(job: JobConfig) -> tuple[Layout | None, list[Problem]]:
    """Compute the layout, or say everything that stands against it.

    On a CPU the number of ranks follows from the parallel sizes; elsewhere `dp_shard=auto` fills the machine.
    """
    parallel, launch, platform = job.parallel, job.launch, job.platform
    model_ranks = parallel.tp * parallel.pp * parallel.cp * parallel.dp_replicate
    problems: list[Problem] = []
    if platform.is_cpu and launch.ranks_per_node is None:
        shard = 1 if parallel.dp_shard == "auto" else parallel.dp_shard
        world = model_ranks * shard
        per_node, rest = divmod(world, launch.nodes)
        if rest:
            problems.append(_world_problem(f"{world} ranks cannot be spread evenly over {launch.nodes} nodes"))
    else:
        per_node = launch.ranks_per_node or platform.gpus_per_node
        world = per_node * launch.nodes
        shard, rest = divmod(world, model_ranks) if parallel.dp_shard == "auto" else (parallel.dp_shard, 0)
        if rest or shard * model_ranks != world:
            problems.append(
                _world_problem(
                    f"tp*pp*cp*dp_replicate{'' if parallel.dp_shard == 'auto' else '*dp_shard'} is "
                    f"{model_ranks * (1 if parallel.dp_shard == 'auto' else shard)}, which does not "
                    f"{'divide' if parallel.dp_shard == 'auto' else 'equal'} the {world} ranks of {launch.nodes} node(s) "
                    f"with {per_node} each"
                )
            )
    if problems:
        return None, problems
    layout = Layout(
        nodes=launch.nodes,
        ranks_per_node=per_node,
        tp=parallel.tp,
        pp=parallel.pp,
        cp=parallel.cp,
        ep=parallel.ep,
        dp_shard=shard,
        dp_replicate=parallel.dp_replicate,
        micro_batch_size=job.training.micro_batch_size,
        global_batch_size=job.training.global_batch_size,
    )
    problems = _batch_problems(job, layout) + _split_problems(job)
    return (None, problems) if problems else (layout, [])


def _world_problem(what: str) -> Problem:
    return Problem(
        key="parallel", what=what, hint="change parallel.*, launch.nodes or launch.ranks_per_node until the products agree"
    )


def _batch_problems(job: JobConfig, layout: Layout) -> list[Problem]:
    samples = layout.micro_batch_size * layout.dp
    if layout.global_batch_size % samples == 0:
        return []
    return [
        Problem(
            key="training.global_batch_size",
            what=f"{layout.global_batch_size} is not a multiple of micro_batch_size x data-parallel ranks "
            f"({layout.micro_batch_size} x {layout.dp} = {samples})",
            hint=f"use {max(1, layout.global_batch_size // samples) * samples}, or another training.micro_batch_size",
        )
    ]


def _split_problems(job: JobConfig) -> list[Problem]:
    model, parallel = job.model, job.parallel
    checks = (
        ("parallel.tp", parallel.tp, model.num_attention_heads, "model.num_attention_heads"),
        ("parallel.tp", parallel.tp, model.kv_heads, "model.num_key_value_heads"),
        ("parallel.ep", parallel.ep, model.n_routed_experts or parallel.ep, "model.n_routed_experts"),
        ("parallel.cp", 2 * parallel.cp if parallel.cp > 1 else 1, job.training.seq_length, "training.seq_length"),
    )
    problems = [
        Problem(key=key, what=f"{name}={size} is not divisible by {degree}", hint=f"change {key} or {name}")
        for key, degree, size, name in checks
        if size % degree
    ]
    if parallel.pp * parallel.vpp > model.num_hidden_layers:
        problems.append(
            Problem(
                key="parallel.pp",
                what=f"{parallel.pp * parallel.vpp} pipeline stages for {model.num_hidden_layers} layers",
                hint="lower parallel.pp or parallel.vpp",
            )
        )
    if parallel.ep > 1 and not model.is_moe:
        problems.append(Problem(key="parallel.ep", what=f"{model.name} has no experts to split", hint="set parallel.ep=1"))
    return problems
