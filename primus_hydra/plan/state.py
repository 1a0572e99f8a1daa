"""Weights, gradients and optimizer state of one rank, in bytes, counted weight by weight.

What is kept, and by how many ranks it is shared:

- torchtitan: parameters, their gradients and Adam's two moments in `precision.params`, each cut along its first
  dimension over dp_shard x cp ranks (FSDP2, `torch.distributed.fsdp.fully_shard`; ZeRO stage 3, Rajbhandari et al.
  2020, 5), experts over dp_shard x cp x tp / ep; replicated over dp_replicate. One float32 step counter per parameter.
- Megatron: the model in the format that is computed with, gradients in float32 in one buffer; main parameters in
  float32 where the model is not, and Adam's two moments in float32, over all data-parallel and context parallel ranks
  where the optimizer is distributed (ZeRO stage 1, ibid.; megatron-core `distributed/param_and_grad_buffer.py`, whose
  buffers begin each parameter at a multiple of 64 numbers and end at one of lcm(ranks, 128)).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from primus_hydra.plan.setting import BYTES, Setting
from primus_hydra.plan.weights import Cut, Weight, embedding, final_norm, layer_weights, model_total, output

_START = 64
_END = 128


@dataclass(frozen=True, kw_only=True)
class State:
    """Bytes of one rank, and the numbers of parameters behind them: `held` before data parallelism shares them."""

    held: int
    weights: int
    gradients: int
    optimizer: int
    held_experts: int = 0

    @property
    def total(self) -> int:
        """All bytes."""
        return self.weights + self.gradients + self.optimizer


def cut_of(setting: Setting) -> Cut:
    """Return how the backend divides weights before data parallelism."""
    etp = setting.etp if setting.megatron else (setting.tp if setting.ep == 1 else 1)
    return Cut(tp=setting.tp, ep=setting.ep, etp=etp)


def weights_of(setting: Setting, rank: int) -> list[tuple[Weight, int]]:
    """Return the weights of a pipeline rank and how often it holds each."""
    model, chunks, latent = setting.model, setting.chunks_of(rank), _local_latent(setting)
    found = [(embedding(model, setting.vocab), 1)] if 0 in chunks else []
    for sparse, count in setting.layers_of_rank(rank).items():
        found += [(weight, count) for weight in layer_weights(model, sparse, local_latent=latent)]
    if len(setting.chunks) - 1 in chunks:
        found.append((final_norm(model), 1))
        # A tied projection is the embedding itself on one rank, and a copy of it on the last stage of several.
        if not model.tie_word_embeddings or setting.pp > 1:
            found.append((output(model, setting.vocab), 1))
    return found


def _local_latent(setting: Setting) -> bool:
    return setting.megatron and not setting.engine


def layer_size(setting: Setting, sparse: bool) -> int:
    """Return the numbers of one layer that a rank holds before data parallelism shares them."""
    cut = cut_of(setting)
    return sum(math.prod(cut.local(weight)) for weight in layer_weights(setting.model, sparse))


def state_of(setting: Setting, rank: int) -> State:
    """Return the state of the fullest data-parallel rank of a pipeline rank."""
    found = weights_of(setting, rank)
    return _megatron(setting, found) if setting.megatron else _titan(setting, found)


def _titan(setting: Setting, found: Sequence[tuple[Weight, int]]) -> State:
    cut, shards = cut_of(setting), setting.dp_shard * setting.cp if setting.sharding == "full" else 1
    expert_shards = max(1, shards * setting.tp // setting.ep) if setting.ep > 1 else shards
    held = held_experts = kept = tensors = 0
    for weight, count in found:
        shape = cut.local(weight)
        size = math.prod(shape)
        held += size * count
        held_experts += size * count if weight.experts else 0
        kept += count * _shard(shape, weight, expert_shards if weight.experts else shards, setting)
        tensors += count
    width = BYTES[setting.params]
    return State(
        held=held,
        held_experts=held_experts,
        weights=kept * width,
        gradients=kept * width,
        optimizer=2 * kept * width + 4 * tensors,
    )


def _shard(shape: tuple[int, ...], weight: Weight, shards: int, setting: Setting) -> int:
    """Return the numbers of the first shard: `torch.chunk` makes it the largest."""
    wide = weight.experts and len(shape) > 1 and shards * setting.ep > weight.shape[0]
    dimension = 1 if wide else 0
    rows = -(-shape[dimension] // shards)
    return math.prod(shape) // shape[dimension] * rows


def _megatron(setting: Setting, found: Sequence[tuple[Weight, int]]) -> State:
    cut = cut_of(setting)
    dense = [(math.prod(cut.local(weight)), count) for weight, count in found if not weight.experts]
    experts = [(math.prod(cut.local(weight)), count) for weight, count in found if weight.experts]
    ranks = setting.dp * setting.cp
    expert_ranks = max(1, ranks * setting.tp // (setting.ep * setting.etp))
    held, held_experts = _count(dense), _count(experts)
    sharded = setting.sharding == "optimizer"
    buffers = [_buffer(dense, ranks, sharded), _buffer(experts, expert_ranks, sharded)]
    kept = sum(
        _largest_share(sizes, ranks_, buffer) if sharded else _count(sizes)
        for sizes, ranks_, buffer in zip((dense, experts), (ranks, expert_ranks), buffers, strict=True)
    )
    each = 12 if setting.compute != "float32" else 8
    shares = (ranks, expert_ranks) if sharded else (1, 1)
    return State(
        held=held + held_experts,
        held_experts=held_experts,
        weights=(sum(buffers) if sharded else held + held_experts) * setting.element,
        gradients=sum(buffers) * 4,
        optimizer=_counted_apart(found, cut, shares, each) if setting.cpu else kept * each,
    )


def _counted_apart(found: Sequence[tuple[Weight, int]], cut: Cut, shares: tuple[int, int], each: int) -> int:
    """Return the optimizer's bytes with torch's AdamW, which keeps a float32 counter beside each parameter that it has.

    (The fused one that GPUs use keeps a number for all.) Which parameters a rank has a part of is found by laying them
    into the buffers, last first.
    """
    sizes: list[tuple[int, bool]] = []
    for count, block in itertools.groupby(found, key=lambda pair: pair[1]):
        one = [(size, weight.experts) for weight, _ in block for size in _tensors(weight, cut)]
        sizes += one * count  # layer after layer
    dense = [size for size, experts in sizes if not experts]
    routed = [size for size, experts in sizes if experts]
    return _most(dense, shares[0], each) + _most(routed, shares[1], each)


def _tensors(weight: Weight, cut: Cut) -> list[int]:
    """Return the sizes of the tensors that Megatron makes of a weight: gate and up are one, every expert is apart."""
    shape = cut.local(weight)
    if weight.name.endswith("_up"):
        return []
    doubled = 2 if weight.name.endswith("_gate") else 1
    if weight.experts:
        return [math.prod(shape[1:]) * doubled] * shape[0]
    return [math.prod(shape) * doubled]


def _most(sizes: Sequence[int], ranks: int, each: int) -> int:
    """Return the most bytes of a rank: its numbers, and a counter for every tensor of which it has a part."""
    if ranks == 1:
        return sum(sizes) * each + 4 * len(sizes)
    if not sizes:
        return 0
    starts, place = [], 0
    for size in reversed(sizes):
        place = _up(place, _START)
        starts.append((place, place + size))
        place += size
    share = _up(place, math.lcm(ranks, _END)) // ranks
    parts = [[max(0, min(end, (rank + 1) * share) - max(start, rank * share)) for start, end in starts]
             for rank in range(ranks)]  # fmt: skip
    return max(sum(mine) * each + 4 * sum(part > 0 for part in mine) for mine in parts)


def _count(sizes: Iterable[tuple[int, int]]) -> int:
    return sum(size * count for size, count in sizes)


def _buffer(sizes: Sequence[tuple[int, int]], ranks: int, padded: bool) -> int:
    if not padded or not sizes:
        return _count(sizes)
    return _up(sum(_up(size, _START) * count for size, count in sizes), math.lcm(ranks, _END))


def _largest_share(sizes: Sequence[tuple[int, int]], ranks: int, buffer: int) -> int:
    """Return the most numbers that one rank's equal part of a buffer holds, padding apart."""
    return min(buffer // ranks, _count(sizes)) if sizes else 0


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def totals(setting: Setting) -> tuple[int, int]:
    """Return the parameters of the whole model, and those that one token meets."""
    model, vocab = setting.model, setting.vocab
    total = model_total(model, vocab)
    routed = sum(w.size for w in layer_weights(model, True) if w.experts) if model.moe_layers else 0
    idle = (model.n_routed_experts or 0) - (model.num_experts_per_tok or 0)
    return total, total - model.moe_layers * routed // (model.n_routed_experts or 1) * idle
