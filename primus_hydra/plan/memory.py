"""Memory of every pipeline stage's rank, part by part, whether it fits, and what to change where it does not.

Parts are added up although they do not all reach their height at once: the allocator keeps the blocks that one moment
has freed, and blocks of logits do not serve a layer. What is no tensor is stated: `DRIVER_GIB` for the driver's context
and communicators, `MARGIN` for blocks that no request fits into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from primus_hydra.plan.activations import layer_kept
from primus_hydra.plan.schedule import most_in_flight
from primus_hydra.plan.setting import BYTES, Setting
from primus_hydra.plan.state import State, layer_size, state_of

GIB = 1 << 30
MARGIN = 0.05
"""Part of all tensors that the allocator holds in blocks too small for any request (stated, not derived)."""
DRIVER_GIB = 1.5
"""The driver's context, its libraries' kernels and the communicators' buffers on one GPU (stated)."""
_WORKSPACE = 64 << 20


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes of the fullest rank of one pipeline stage. `gathered` are whole parameters and gradients, for a while."""

    rank: int
    layers: int
    weights: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    logits: float
    buffers: float
    margin: float
    driver: float
    in_flight: int

    @property
    def total(self) -> float:
        """All bytes."""
        return float(sum(getattr(self, name) for name in PARTS))


PARTS = tuple(field.name for field in fields(StageMemory) if field.name not in ("rank", "layers", "in_flight"))
"""The parts of a stage's memory, in the order in which they are shown."""

SOURCES = {
    "weights": "counted weight by weight; cut by tp, ep, etp (Shoeybi et al. 2019, 3) and by FSDP2 (ZeRO, 2020, 5)",
    "gradients": "as weights; Megatron: one float32 buffer (megatron-core param_and_grad_buffer.py)",
    "optimizer": "two moments, and float32 main parameters where the model has none; shared as sharding says (ZeRO, 5)",
    "gathered": "FSDP2: two layers' parameters, one's gradients; under a pipeline all of a rank's (torch fully_shard)",
    "activations": "tensor by tensor (Korthikanti et al. 2022, 4; Dao et al. 2022, 3.1), times microbatches in flight",
    "logits": "logits in three float32 copies at their height, over the pieces that the loss is computed in",
    "buffers": "received activations, float32 query gradients of the fused attention (Dao 2023, 3.1), workspace",
    "margin": f"{MARGIN:.0%} of all tensors (stated)",
    "driver": f"{DRIVER_GIB} GiB of driver, kernels and communicators (stated)",
}
"""Where each part comes from."""


def memory_of(setting: Setting) -> list[StageMemory]:
    """Return the memory of every pipeline rank."""
    return [stage_memory(setting, rank) for rank in range(setting.pp)]


def peak(stages: Sequence[StageMemory]) -> StageMemory:
    """Return the fullest stage."""
    return max(stages, key=lambda stage: stage.total)


def stage_memory(setting: Setting, rank: int, state: State | None = None) -> StageMemory:
    """Return the memory of one pipeline rank, whose `state` may be known already."""
    state, chunks = state or state_of(setting, rank), setting.chunks_of(rank)
    flight = most_in_flight(setting.schedule, setting.pp, setting.vpp, setting.microbatches, rank)
    kept, working = _activations(setting, rank, flight)
    last = len(setting.chunks) - 1 in chunks
    tensors = {
        "weights": float(state.weights),
        "gradients": float(state.gradients),
        "optimizer": float(state.optimizer),
        "gathered": _gathered(setting, state.held, rank),
        "activations": kept + working,
        "logits": _logits(setting) if last else 0.0,
        "buffers": _buffers(setting),
    }
    margin = 0.0 if setting.cpu else MARGIN * sum(tensors.values())
    driver = 0.0 if setting.cpu else DRIVER_GIB * GIB
    layers = sum(setting.chunks[chunk] for chunk in chunks)
    return StageMemory(rank=rank, layers=layers, **tensors, margin=margin, driver=driver, in_flight=flight)


def _activations(setting: Setting, rank: int, flight: int) -> tuple[float, float]:
    """Return what is kept for the backward, and what one layer's backward recomputes on top of it."""
    chunks = setting.chunks_of(rank)
    kinds = {kind: layer_kept(setting, kind) for kind in setting.layers_of_rank(rank)}
    each = sorted(
        (sum(kinds[kind].saved * count for kind, count in setting.layers_of(chunk)) for chunk in chunks), reverse=True
    )
    # The same number of forwards of every chunk is in flight, and one more of the largest ones.
    rounds, more = divmod(flight, len(chunks))
    kept = sum(each) * rounds + sum(each[:more])
    # The input and output of the stage's ends: embedded tokens, and the normalised last layer.
    ends = (0 in chunks) + (len(setting.chunks) - 1 in chunks)
    edge = setting.tokens * setting.model.hidden_size * setting.element / setting.split_tokens
    working = max((kind.whole - kind.saved for kind in kinds.values()), default=0.0)
    return kept + ends * edge, working


def _gathered(setting: Setting, held: int, rank: int) -> float:
    """Return the bytes of parameters that FSDP2 gathers, and of the gradients that it has not shared out yet."""
    if setting.megatron:
        return 0.0
    element, reduced, chunks = setting.element, BYTES["float32"], setting.chunks_of(rank)
    if not setting.reshard:
        # Under a pipeline gradients gather whole, in the format of the reduction, until the last microbatch.
        return float(held) * (element + (reduced if setting.pp > 1 else 0))
    layer = max((layer_size(setting, kind) for kind in setting.layers_of_rank(rank)), default=0)
    ends = setting.vocab * setting.model.hidden_size // setting.tp
    edges = ends * element * ((0 in chunks) + (len(setting.chunks) - 1 in chunks))
    return layer * (2 * element + element + reduced) + edges


def _logits(setting: Setting) -> float:
    """Return the bytes of logits and their gradients at their height.

    torch's cross entropy holds a float32 log-softmax, its gradient, and the gradient of the logits at once; Megatron's
    (`tensor_parallel/cross_entropy.py`) works on one float32 copy in place, beside logits and gradient as computed.
    """
    each = 4 + 2 * setting.element if setting.megatron else 12
    pieces = setting.tokens / setting.loss_chunks
    hidden = setting.tokens * setting.model.hidden_size * setting.element if setting.loss_chunks > 1 else 0
    return pieces * setting.vocab / setting.tp * each + hidden


def _buffers(setting: Setting) -> float:
    if setting.cpu:
        return 0.0
    model = setting.model
    passed = setting.tokens * model.hidden_size * setting.element / setting.split_tokens
    queries = setting.tokens * model.num_attention_heads * model.head_width / setting.tp * 4
    return (4 * passed if setting.pp > 1 else 0.0) + queries + _WORKSPACE


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of the configuration, and the peak that it leads to, in bytes."""

    override: str
    peak: float


def what_fits(setting: Setting, capacity: float) -> list[Change]:
    """Return single changes after which the job fits in `capacity` bytes, those that keep most of the speed first."""
    changes = ((override, peak(memory_of(changed)).total) for override, changed in _changes(setting))
    return [Change(override=override, peak=total) for override, total in changes if total <= capacity]


def _changes(setting: Setting) -> Iterator[tuple[str, Setting]]:
    for mode in ("selective", "full"):
        if setting.recompute in ("none", "selective") and setting.recompute != mode:
            yield f"recompute.mode={mode}", replace(setting, recompute=mode)
    if setting.micro_batch > 1 and setting.pp * setting.vpp == 1:
        smaller = replace(setting, micro_batch=1, microbatches=setting.microbatches * setting.micro_batch)
        yield "training.micro_batch_size=1", smaller
        yield "training.micro_batch_size=1 recompute.mode=full", replace(smaller, recompute="full")
    heads, tp = setting.model.kv_heads, setting.tp * 2
    while tp <= min(heads, setting.ranks_per_node) and setting.dp_shard % 2 == 0 and heads % tp == 0:
        factor = tp // setting.tp
        if setting.dp_shard % factor:
            break
        cut = replace(
            setting, tp=tp, dp_shard=setting.dp_shard // factor, microbatches=setting.microbatches * factor,
            sequence_parallel=True,
        )  # fmt: skip
        yield f"parallel.tp={tp}", cut
        yield f"parallel.tp={tp} recompute.mode=full", replace(cut, recompute="full")
        tp *= 2
