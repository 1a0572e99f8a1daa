"""How long a step should take, and where the time goes: a roofline per operation, collectives, the pipeline.

Each product takes the longer of its operations at the achieved rate and its bytes at the achieved bandwidth (Williams
et al. 2009, "Roofline"); operations between products take their bytes. See `rates` for the achieved fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from primus_hydra.plan.communication import (
    OVERLAP,
    Piece,
    context_parallel,
    data_group,
    data_parallel,
    expert_parallel,
    tensor_parallel,
)
from primus_hydra.plan.flops import causal_pairs, model_flops, pair_flops
from primus_hydra.plan.rates import Rates, gather_seconds, group_of, reduce_seconds
from primus_hydra.plan.schedule import Pipeline, step_seconds
from primus_hydra.plan.setting import Setting
from primus_hydra.plan.state import State, cut_of, state_of
from primus_hydra.plan.weights import LATENT, layer_weights

_KERNELS_PER_LAYER = 40
"""Kernels that eager code starts in the forward of a layer, of which each takes the host a launch (stated)."""
PARTS = ("products", "attention", "between products", "recompute", "loss", "tensor parallel", "experts", "context",
         "data parallel", "pipeline", "optimizer")  # fmt: skip
"""Where the time of a step goes."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """What a job should reach. `where` are seconds of the busiest stage, by part; `bubble` is a part of the step."""

    step_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    model_tflops: float
    tflops_all_pairs: float
    bubble: float
    where: Mapping[str, float]
    confidence: str
    source: str


def throughput_of(setting: Setting, rates: Rates, *, exact: bool = True, state: State | None = None) -> Throughput:
    """Return the projection of a job; `exact=False` takes the pipeline's closed form instead of running its schedule.

    `state` is that of the first pipeline rank, if it is known already.
    """
    chunks = _chunks(setting, rates)
    passed = _passed(setting, rates)
    seconds, bubble = _pipeline(setting, chunks, passed, exact)
    slowest = _busiest(setting, chunks)
    where = {part: slowest.parts.get(part, 0.0) * setting.microbatches for part in PARTS if part in slowest.parts}
    where["pipeline"] = bubble * seconds
    shared, optimizer = _end_of_step(setting, rates, slowest, state or state_of(setting, 0))
    where["data parallel"] = where.get("data parallel", 0.0) + shared
    where["optimizer"] = optimizer
    step = seconds + shared + optimizer
    return _summary(setting, rates, step, bubble * seconds / step, {k: v for k, v in where.items() if v > 0})


def _summary(setting: Setting, rates: Rates, step: float, bubble: float, where: Mapping[str, float]) -> Throughput:
    flops = model_flops(setting.model, setting.vocab, setting.seq)
    per_gpu = setting.tokens_per_step / step / setting.world
    return Throughput(
        step_s=step,
        tokens_per_s_per_gpu=per_gpu,
        mfu=per_gpu * flops.trained / rates.peak,
        model_tflops=per_gpu * flops.trained / 1e12,
        tflops_all_pairs=per_gpu * flops.all_pairs / 1e12,
        bubble=bubble,
        where=where,
        confidence=_confidence(setting),
        source=rates.source,
    )


def _confidence(setting: Setting) -> str:
    """Say how far the projection was off where results are published (docs/published.md)."""
    doubts = []
    if setting.model.is_moe:
        doubts.append("experts are taken as balanced")
    if setting.fp8:
        doubts.append("fp8's conversions differ between versions")
    if setting.compiled:
        doubts.append("what the compiler fuses is assumed")
    within = "25 %" if setting.model.is_moe else "15 %"
    return f"within about {within}" + (f": {', '.join(doubts)}" if doubts else "")


def timeline_of(setting: Setting, rates: Rates, most: int = 0) -> Pipeline:
    """Return the pipeline of a job, with the seconds of its pieces, for a picture; `most` bounds its microbatches."""
    chunks = _chunks(setting, rates)
    count = min(setting.microbatches, most) if most else setting.microbatches
    return _as_pipeline(setting, chunks, _passed(setting, rates), count)


def _as_pipeline(setting: Setting, chunks: list[Piece], passed: float, microbatches: int) -> Pipeline:
    owner = {chunk: rank for rank in range(setting.pp) for chunk in setting.chunks_of(rank)}
    return Pipeline(
        schedule=setting.schedule,
        ranks=setting.pp,
        rank_of=tuple(owner[chunk] for chunk in range(len(chunks))),
        microbatches=microbatches,
        forward=tuple(piece.forward for piece in chunks),
        backward=tuple(piece.backward for piece in chunks),
        passed=passed,
    )


def _pipeline(setting: Setting, chunks: list[Piece], passed: float, exact: bool) -> tuple[float, float]:
    """Return the seconds of all microbatches, and the part in which the busiest rank waits."""
    busiest = _busiest(setting, chunks)
    work = (busiest.forward + busiest.backward) * setting.microbatches
    if setting.pp == 1:
        return work, 0.0
    if exact:
        seconds, busy = step_seconds(_as_pipeline(setting, chunks, passed, setting.microbatches))
        return seconds, 1 - busy / seconds
    seconds = work + idle_seconds(setting, busiest.forward, busiest.backward, passed)
    return seconds, 1 - work / seconds


def idle_seconds(setting: Setting, forward: float, backward: float, passed: float) -> float:
    """Return the idle time of a schedule by its closed form (Narayanan et al. 2021, 2.2; Qi et al. 2023, 2.3)."""
    turns = setting.pp - 1
    if setting.splits_backward:
        # A third of 1F1B's at most: W fills what B leaves (ZB-H1); the V-shaped ones nearly none.
        share = 1 / 3 if setting.schedule.lower() == "interleavedzerobubble" else 0.05
        return turns * (forward + backward) / setting.vpp * share + 2 * turns * passed
    return turns * ((forward + backward) / setting.vpp + 2 * passed)


def _busiest(setting: Setting, chunks: list[Piece]) -> Piece:
    """Return the work of the pipeline rank that has most, for one microbatch."""
    ranks = (_sum(chunks[chunk] for chunk in setting.chunks_of(rank)) for rank in range(setting.pp))
    return max(ranks, key=lambda piece: piece.forward + piece.backward)


def _passed(setting: Setting, rates: Rates) -> float:
    if setting.pp == 1:
        return 0.0
    sent = setting.tokens * setting.model.hidden_size * setting.element / setting.split_tokens
    stride = setting.world // setting.pp
    speed, latency = (
        (rates.nic, rates.latency_nic) if stride >= setting.ranks_per_node else (rates.link, rates.latency_link)
    )
    return sent / speed + latency


def _chunks(setting: Setting, rates: Rates) -> list[Piece]:
    """Return the seconds of every chunk of the model."""
    kinds = {sparse: _layer(setting, rates, sparse) for sparse in _kinds(setting)}
    pieces: dict[tuple[tuple[bool, int], ...], Piece] = {}
    chunks = []
    for chunk in range(len(setting.chunks)):
        layers = setting.layers_of(chunk)
        if layers not in pieces:
            pieces[layers] = _sum(kinds[sparse].times(count) for sparse, count in layers)
        chunks.append(pieces[layers])
    chunks[-1] = _sum([chunks[-1], _ends(setting, rates)])
    return chunks


def _kinds(setting: Setting) -> set[bool]:
    return {sparse for chunk in range(len(setting.chunks)) for sparse, _ in setting.layers_of(chunk)}


def _sum(pieces: Iterable[Piece]) -> Piece:
    total = Piece()
    for piece in pieces:
        total.forward += piece.forward
        total.backward += piece.backward
        for part, seconds in piece.parts.items():
            total.parts[part] = total.parts.get(part, 0.0) + seconds
    return total


def _layer(setting: Setting, rates: Rates, sparse: bool) -> Piece:
    """Return the seconds of one layer and microbatch, collectives inside it included."""
    piece = Piece()
    products = _product_seconds(setting, rates, sparse)
    piece.add("products", products, 2 * products)
    forward, backward = _attention_seconds(setting, rates)
    piece.add("attention", forward, backward)
    between = _between_seconds(setting, rates, sparse)
    piece.add("between products", between, 2 * between)
    again = _recomputed(setting, products, forward, between)
    piece.add("recompute", 0.0, again)
    if not setting.compiled:
        slow = _KERNELS_PER_LAYER * rates.launch - piece.forward
        if slow > 0:
            piece.add("between products", slow, 2 * slow)
    computed = piece.forward, piece.backward
    tensor_parallel(setting, rates, piece)
    context_parallel(setting, rates, piece, forward)
    if sparse:
        expert_parallel(setting, rates, piece)
    if not setting.megatron:
        data_parallel(setting, rates, sparse, piece, computed)
    return piece


def _product_seconds(setting: Setting, rates: Rates, sparse: bool) -> float:
    cut, tokens, model = cut_of(setting), setting.tokens, setting.model
    seconds = 0.0
    for weight in layer_weights(model, sparse):
        if not weight.product:
            continue
        shape = cut.local(weight)
        rows = tokens
        if weight.experts:
            # As many tokens come as go: each rank's experts see k times its tokens, on etp ranks all of theirs.
            rows = int(tokens * (model.num_experts_per_tok or 1) * cut.etp / setting.split_tokens)
        eight = setting.fp8 and weight.name != "router" and min(shape[-1], shape[-2]) % 16 == 0
        seconds += _matrix(rates, rows, shape, weight.experts, eight, setting.element)
    return seconds


def _matrix(rates: Rates, rows: int, shape: tuple[int, ...], experts: bool, eight: bool, element: int) -> float:
    """Return the roofline time of rows x (width -> width); experts share the rows among them."""
    out, width = shape[-2], shape[-1]
    matrices = shape[0] if experts and len(shape) == 3 else 1
    rate, size = (rates.gemm_8, 1) if eight else (rates.gemm, element)
    moved = rows * (width * size + out * element) + matrices * out * width * size
    # Tiles of 128 x 128 that are not full compute as long as full ones.
    full = matrices * _tiles(max(1, rows // matrices)) * out * width * 2.0
    return max(full / rate, moved / rates.memory)


def _tiles(rows: int) -> int:
    return -(-rows // 128) * 128


def _attention_seconds(setting: Setting, rates: Rates) -> tuple[float, float]:
    """Return the seconds of scores and values; the backward computes scores again: 5 products for 2 (Dao 2023, 2.3)."""
    model = setting.model
    window = model.sliding_window
    pairs = causal_pairs(setting.seq, window)
    if window is not None and model.architecture == "gpt_oss":
        pairs = (pairs + causal_pairs(setting.seq)) / 2
    flops = setting.tokens * pairs * pair_flops(model) / setting.tp
    return flops / rates.attention_forward, 2.5 * flops / rates.attention_backward


def _between_seconds(setting: Setting, rates: Rates, sparse: bool) -> float:
    """Return the seconds of a layer's norms, positions, activations and sums: bytes that they read and write.

    Fused code (the compiler's, Transformer Engine's) reads each input and writes each output once; eager code goes over
    them operation by operation, positions in float32.
    """
    model, element = setting.model, setting.element
    fused = setting.compiled or setting.engine
    hidden = model.hidden_size * element / setting.split_tokens
    heads = (model.num_attention_heads + 2 * model.kv_heads) * model.head_width / setting.tp
    if model.architecture in LATENT:
        rope = (model.qk_rope_head_dim or 0) + (model.qk_nope_head_dim or 0)
        heads = 2 * model.num_attention_heads * rope / setting.tp
    gated = model.intermediate_size / setting.tp
    if sparse:
        shared, copies = model.n_shared_experts or 0, model.num_experts_per_tok or 1
        gated = model.expert_width * (shared / setting.tp + copies / setting.split_tokens)
        hidden += 2 * copies * model.hidden_size * element / setting.split_tokens
    residual = (2 * 4 if fused else 2 * (2 + 3)) * hidden
    positions = heads * ((2 * element) if fused else (4 * element + 20))
    activation = gated * element * (3 if fused else 5)
    casts = 0.0
    if setting.fp8:
        # Each product's input is read and written in 8 bits; finding its largest value reads it once more.
        casts = (2 * hidden + heads * element / 2 + gated * element) * (1.5 if fused else 3.0)
    return setting.tokens * (residual + positions + activation + casts) / rates.memory


def _recomputed(setting: Setting, products: float, attention: float, between: float) -> float:
    match setting.recompute:
        case "full":
            return products + attention + between
        case "selective":
            # torchtitan keeps every second product and the attention; Megatron recomputes what fused attention is.
            return attention if setting.megatron else 0.35 * products + between
        case "memory_budget":
            return (1 - setting.memory_budget) * (products + attention + between)
    return 0.0


def _ends(setting: Setting, rates: Rates) -> Piece:
    """Return the seconds of output projection and loss, on the last stage."""
    piece = Piece()
    shape = (setting.vocab // setting.tp, setting.model.hidden_size)
    seconds = _matrix(rates, setting.tokens, shape, False, False, setting.element)
    # Logits are written, read and copied as float32 several times: log-softmax, loss, two gradients, the cast back.
    passes = 16 if setting.megatron or setting.compiled else 38
    loss = setting.tokens * setting.vocab / setting.tp * passes / rates.memory
    piece.add("loss", seconds + loss / 3, 2 * seconds + loss * 2 / 3)
    return piece


def _end_of_step(setting: Setting, rates: Rates, slowest: Piece, state: State) -> tuple[float, float]:
    """Return what is left of the gradients' reduction after the last backward, and the optimizer's seconds."""
    group, shared = data_group(setting), 0.0
    if setting.megatron and group.ranks > 1:
        whole = state.held - state.held_experts
        experts = state.held_experts
        sparse = group_of(
            max(1, group.ranks * setting.tp // (setting.ep * setting.etp)),
            setting.ep * setting.etp,
            setting.ranks_per_node,
        )
        reduce = gather_seconds if setting.sharding == "optimizer" else reduce_seconds
        scatter = reduce(rates, group, whole * 4) + reduce(rates, sparse, experts * 4)
        gather = 0.0
        if setting.sharding == "optimizer":
            gather = gather_seconds(rates, group, whole * setting.element)
            gather += gather_seconds(rates, sparse, experts * setting.element)
        shared = max(0.0, scatter - OVERLAP * slowest.backward) + max(0.0, gather - OVERLAP * slowest.forward)
    elif not setting.megatron and setting.pp > 1 and group.ranks > 1:
        shared = gather_seconds(rates, group, state.held * 4) + gather_seconds(
            rates, group, state.held * setting.element
        )
    # Parameters, gradients and two moments are read, three of them written; the norm of the gradients reads them first.
    moved = (
        state.optimizer / 2 * 7 + state.gradients * 2 if not setting.megatron else state.optimizer * 2 + state.gradients
    )
    return shared, moved / rates.memory
