"""The layout of a job over ranks: how many start, and how the global batch is cut. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from primus_hydra.config.nearest import in_words, near_divisors, near_multiples
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
    world, problems = _world_of(job)
    problems += _split_problems(job)
    if world is None:
        return None, problems
    per_node, shard = world
    dp = shard * job.parallel.dp_replicate
    problems += _batch_problems(job, dp)
    if problems:
        return None, problems
    return _layout(job, per_node, shard), []


def _layout(job: JobConfig, per_node: int, shard: int) -> Layout:
    parallel = job.parallel
    return Layout(
        nodes=job.launch.nodes,
        ranks_per_node=per_node,
        tp=parallel.tp,
        pp=parallel.pp,
        cp=parallel.cp,
        ep=parallel.ep,
        dp_shard=shard,
        dp_replicate=parallel.dp_replicate,
        micro_batch_size=_micro_batch(job, shard * parallel.dp_replicate),
        global_batch_size=job.training.global_batch_size,
    )


def _world_of(job: JobConfig) -> tuple[tuple[int, int] | None, list[Problem]]:
    """Return (ranks per node, dp_shard), or why the parallel sizes do not fit the machine."""
    parallel, nodes = job.parallel, job.launch.nodes
    others = parallel.tp * parallel.pp * parallel.cp * parallel.dp_replicate
    if job.platform.is_cpu and job.launch.ranks_per_node is None:
        shard = 1 if parallel.dp_shard == "auto" else parallel.dp_shard
        per_node, rest = divmod(others * shard, nodes)
        what = f"{others * shard} ranks cannot be spread evenly over {nodes} nodes"
        return (None, [_world_problem(what, job, None)]) if rest else ((per_node, shard), [])
    per_node = job.launch.ranks_per_node or job.platform.gpus_per_node
    world = per_node * nodes
    ranks = f"the {world} ranks of {nodes} node(s) with {per_node} each"
    if parallel.dp_shard == "auto":
        shard, rest = divmod(world, others)
        fits = rest == 0 and shard > 0
        what = f"tp*pp*cp*dp_replicate = {others} does not divide {ranks}"
    else:
        shard = parallel.dp_shard
        fits = others * shard == world
        what = f"tp*pp*cp*dp_replicate*dp_shard = {others * shard} is not {ranks}"
    return ((per_node, shard), []) if fits else (None, [_world_problem(what, job, world)])


def _world_problem(what: str, job: JobConfig, world: int | None) -> Problem:
    hint = "change parallel.*, launch.nodes or launch.ranks_per_node until the products agree"
    near = "; ".join(_near_sizes(job, world)) if world else ""
    return Problem(key="parallel", what=what, hint=f"{near}; or {hint}" if near else hint)


def _near_sizes(job: JobConfig, world: int) -> Iterator[str]:
    """Say by which one change of a size the product comes out, nearest values first."""
    parallel = job.parallel
    sizes = {name: getattr(parallel, name) for name in ("tp", "pp", "cp", "dp_replicate", "dp_shard")}
    automatic = sizes["dp_shard"] == "auto"
    given = {name: size for name, size in sizes.items() if size != "auto"}
    for name, size in given.items():
        rest = math.prod(other for key, other in given.items() if key != name)
        if size == 1 or world % rest:
            continue
        near = near_divisors([world // rest], size) if automatic else [world // rest]
        yield f"parallel.{name} can be {in_words(near)}"


def _micro_batch(job: JobConfig, dp: int) -> int:
    """Return the samples of one forward; auto is a pipeline's smallest, and elsewhere a rank's whole share."""
    micro = job.training.micro_batch_size
    if micro != "auto":
        return micro
    return 1 if job.parallel.pp > 1 else max(1, job.training.global_batch_size // dp)


def _batch_problems(job: JobConfig, dp: int) -> list[Problem]:
    micro, batch = _micro_batch(job, dp), job.training.global_batch_size
    samples = micro * dp
    if batch % samples == 0:
        return []
    what = f"{batch} is not a multiple of micro_batch_size x data-parallel ranks ({micro} x {dp} = {samples})"
    hint = f"use {in_words(near_multiples(samples, batch))}, or another training.micro_batch_size"
    return [Problem(key="training.global_batch_size", what=what, hint=hint)]


def _split_hint(key: str, degree: int, size: int, name: str) -> str:
    """Say which values are legal: of a degree those that divide, of a sequence its multiples."""
    if key == "parallel.cp":
        return f"{name} can be {in_words(near_multiples(degree, size))}, or change {key}"
    return f"{key} can be {in_words(near_divisors([size], degree))}, or change {name}"


def _split_problems(job: JobConfig) -> list[Problem]:
    model, parallel = job.model, job.parallel
    checks = (
        ("parallel.tp", parallel.tp, model.num_attention_heads, "model.num_attention_heads"),
        ("parallel.tp", parallel.tp, model.kv_heads, "model.num_key_value_heads"),
        ("parallel.ep", parallel.ep, model.n_routed_experts or parallel.ep, "model.n_routed_experts"),
        ("parallel.cp", 2 * parallel.cp if parallel.cp > 1 else 1, job.training.seq_length, "training.seq_length"),
    )
    problems = [
        Problem(key=key, what=f"{name}={size} is not divisible by {degree}", hint=_split_hint(key, degree, size, name))
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
        problems.append(
            Problem(key="parallel.ep", what=f"{model.name} has no experts to split", hint="set parallel.ep=1")
        )
    return problems
