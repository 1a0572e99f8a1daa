"""What memory and speed of a job depend on, in plain numbers: read from the configuration once, varied by the search.

Refuses nothing: a setting is made only of a job whose layout exists. What a backend decides by itself (layers per
stage, formats, what is sharded) is stated here, with the place in the backend that decides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from primus_hydra.config.layout import Layout
from primus_hydra.config.nearest import even_split, weighted_split
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.schema.model import ModelConfig

Sharding = Literal["none", "optimizer", "full"]
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_LOSS_CHUNKS = 8
"""Pieces in which torchtitan computes logits and loss (`ChunkedLossWrapper`)."""
_SPLITS_BACKWARD = ("interleavedzerobubble", "zbvzerobubble", "dualpipev")
_TWO_WAY = ("zbvzerobubble", "dualpipev")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A job as memory and speed see it. `sharding` is what the backend makes of parallel.sharding.

    `engine` says whether fused layers are used (Transformer Engine); `cpu` whether ranks run on a processor, where
    other tensors are kept. `chunks` are the layers of every model chunk, in the order of the model. `loss_chunks` is
    the number of pieces in which the logits are computed.
    """

    backend: str
    model: ModelConfig
    vocab: int
    seq: int
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    etp: int
    dp_shard: int
    dp_replicate: int
    micro_batch: int
    microbatches: int
    chunks: tuple[int, ...]
    schedule: str = "1F1B"
    sequence_parallel: bool = True
    sharding: Sharding = "full"
    reshard: bool = True
    recompute: str = "none"
    memory_budget: float = 0.5
    params: str = "float32"
    compute: str = "bfloat16"
    fp8: bool = False
    compiled: bool = False
    engine: bool = False
    cpu: bool = False
    loss_chunks: int = 1
    ranks_per_node: int = 8

    @property
    def dp(self) -> int:
        """Ranks that see different samples."""
        return self.dp_shard * self.dp_replicate

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def megatron(self) -> bool:
        """Whether Megatron's rules hold; torchtitan's otherwise."""
        return self.backend.startswith("megatron")

    @property
    def element(self) -> int:
        """Bytes of one number that is computed with."""
        return BYTES[self.compute]

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch on one rank: context parallel ranks share a sequence."""
        return self.micro_batch * self.seq // self.cp

    @property
    def split_tokens(self) -> int:
        """Ranks that share the tokens outside attention and feed-forward (sequence parallelism)."""
        return self.tp if self.sequence_parallel else 1

    @property
    def tokens_per_step(self) -> int:
        """Tokens of all ranks in one optimizer step."""
        return self.micro_batch * self.microbatches * self.dp * self.seq

    @property
    def splits_backward(self) -> bool:
        """Whether the schedule computes gradients of inputs and of weights apart."""
        return self.pp > 1 and self.schedule.lower() in _SPLITS_BACKWARD

    def chunks_of(self, rank: int) -> tuple[int, ...]:
        """Return the chunks of a pipeline rank."""
        return _chunks_of(self.pp, len(self.chunks), self.vpp > 1 and self.schedule.lower() in _TWO_WAY)[rank]

    def layers_of(self, chunk: int) -> tuple[tuple[bool, int], ...]:
        """Return (whether they route to experts, how many) for the layers of a chunk."""
        model = self.model
        if not model.is_moe:
            return ((False, self.chunks[chunk]),)
        return _kinds(model.first_k_dense_replace, model.interleave_moe_layer_step, self.chunks)[chunk]

    def layers_of_rank(self, rank: int) -> dict[bool, int]:
        """Return how many dense and sparse layers a pipeline rank holds."""
        found: dict[bool, int] = {}
        for chunk in self.chunks_of(rank):
            for sparse, count in self.layers_of(chunk):
                found[sparse] = found.get(sparse, 0) + count
        return found


@lru_cache(maxsize=4096)
def _chunks_of(ranks: int, chunks: int, two_way: bool) -> tuple[tuple[int, ...], ...]:
    """Return the chunks of every rank: in turn, or down and up again for the V-shaped schedules."""
    found: list[list[int]] = [[] for _ in range(ranks)]
    for chunk in range(chunks):
        found[2 * ranks - 1 - chunk if two_way and chunk >= ranks else chunk % ranks].append(chunk)
    return tuple(tuple(mine) for mine in found)


@lru_cache(maxsize=4096)
def _kinds(dense: int, every: int, chunks: tuple[int, ...]) -> tuple[tuple[tuple[bool, int], ...], ...]:
    """Return the kinds of each chunk's layers, as `ModelConfig.routes` tells them apart."""
    found, first = [], 0
    for count in chunks:
        sparse = sum(layer >= dense and (layer + 1) % every == 0 for layer in range(first, first + count))
        found.append(tuple(pair for pair in ((False, count - sparse), (True, sparse)) if pair[1]))
        first += count
    return tuple(found)


def setting_of(job: JobConfig, layout: Layout, vocab: int) -> Setting:
    """Return the setting of a job with `vocab` embedding rows."""
    parallel, megatron = job.parallel, job.backend.name.startswith("megatron")
    cpu = job.platform.is_cpu
    return Setting(
        backend=job.backend.name,
        model=job.model,
        vocab=vocab,
        seq=job.training.seq_length,
        tp=layout.tp,
        pp=layout.pp,
        vpp=parallel.vpp,
        cp=layout.cp,
        ep=layout.ep,
        etp=parallel.etp,
        dp_shard=layout.dp_shard,
        dp_replicate=layout.dp_replicate,
        micro_batch=layout.micro_batch_size,
        microbatches=layout.microbatches,
        chunks=tuple(chunks_of(job)),
        schedule=parallel.pipeline_schedule,
        sequence_parallel=parallel.sequence_parallel and layout.tp > 1,
        sharding=_sharding(job, layout, megatron),
        reshard=_reshards(job),
        recompute=job.recompute.mode,
        memory_budget=job.recompute.memory_budget,
        params=job.precision.params,
        compute=job.precision.compute,
        fp8=job.precision.fp8 is not None,
        compiled=job.compile.enable and "model" in job.compile.components,
        engine=megatron and not cpu and _section(job, "model").get("layer_implementation") != "local",
        cpu=cpu,
        loss_chunks=_loss_chunks(job, megatron),
        ranks_per_node=layout.ranks_per_node,
    )


def chunks_of(job: JobConfig) -> list[int]:
    """Return the layers of every model chunk, as the backend cuts them."""
    layers, stages = job.model.num_hidden_layers, job.parallel.pp * job.parallel.vpp
    if stages == 1 or stages > layers:
        return [layers] if stages == 1 else even_split(layers, stages)
    if not job.backend.name.startswith("megatron"):
        ends = [_end(job, name) for name in ("first", "last")]
        return weighted_split(layers, stages, *ends)
    transformer = _section(job, "transformer")
    named = [transformer.get(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    return _named_split(layers, stages, job.parallel.vpp, named)


def _named_split(layers: int, stages: int, vpp: int, named: list[object]) -> list[int]:
    """Return Megatron's split: first and last pipeline rank as named (over their chunks), the others alike."""
    fixed = [size for size in named if isinstance(size, int)]
    if not fixed or stages <= len(fixed) * vpp:
        return even_split(layers, stages)
    pp = stages // vpp
    middle = (layers - sum(fixed)) / (pp - len(fixed)) / vpp
    ranks = [middle] * pp
    for place, size in zip((0, -1), named, strict=True):
        if isinstance(size, int):
            ranks[place] = size / vpp
    return [round(ranks[stage % pp]) for stage in range(stages)]


def _end(job: JobConfig, name: str) -> int:
    given = _section(job, "parallelism").get(f"pipeline_parallel_{name}_stage_less_layers")
    return given if isinstance(given, int) else 1


def _section(job: JobConfig, name: str) -> dict[str, object]:
    section = job.backend.config.get(name, {})
    return section if isinstance(section, dict) else {}


def _sharding(job: JobConfig, layout: Layout, megatron: bool) -> Sharding:
    asked = job.parallel.sharding
    if asked == "none" or (megatron and layout.dp * layout.cp == 1):
        return "none"
    return "optimizer" if megatron else "full"


def _reshards(job: JobConfig) -> bool:
    """Whether full parameters are freed after the forward; torchtitan keeps them under a pipeline."""
    asked = job.parallel.reshard_after_forward
    return asked == "always" or (asked == "default" and job.parallel.pp == 1)


def _loss_chunks(job: JobConfig, megatron: bool) -> int:
    loss = _section(job, "loss")
    plain = str(loss.get("_target_", "")).endswith("CrossEntropyLoss.Config")
    splits = job.parallel.pp > 1 and job.parallel.pipeline_schedule.lower() in _SPLITS_BACKWARD
    if megatron or plain or splits:
        return 1
    given = loss.get("num_chunks")
    return given if isinstance(given, int) else _LOSS_CHUNKS
