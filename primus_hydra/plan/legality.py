"""Every rule that the sizes of a job must keep, with its reason and the nearest values that keep it. Pure arithmetic.

The checks of a start (`config.layout`, `config.architecture`, a backend's limits) say what is wrong; here is the whole
list, also what holds, and rules that nobody else checks. The search asks `legal` thousands of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from primus_hydra.config.nearest import even_split, in_words, near_divisors, near_multiples
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.errors import Problem
from primus_hydra.plan.setting import Setting

_FP8_STEP = 16
_INTERLEAVED = ("interleaved1f1b", "interleavedzerobubble")
_V_SHAPED = ("zbvzerobubble", "dualpipev")
_ONE_CHUNK = ("1f1b", "gpipe")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule as it stands for a job: what was compared, whether it holds, why it is, and what would keep it."""

    key: str
    what: str
    holds: bool
    reason: str
    nearest: str | None = None


def rules_of(setting: Setting) -> list[Rule]:
    """Return every rule that says something about a setting, whether it holds or not."""
    return [
        *_world(setting),
        *_tensor(setting),
        *_experts(setting),
        *_pipeline(setting),
        *_sequence(setting),
        *_fp8(setting),
    ]


def legal(setting: Setting) -> bool:
    """Whether every rule holds."""
    return all(rule.holds for rule in rules_of(setting))


def legality_problems(setting: Setting) -> list[Problem]:
    """Return the broken rules as problems of the user's."""
    return [
        Problem(key=rule.key, what=f"{rule.what}: {rule.reason}", hint=rule.nearest)
        for rule in rules_of(setting)
        if not rule.holds
    ]


def _divides(key: str, degree: int, size: int, name: str, reason: str, sizes: list[int] | None = None) -> Rule:
    holds = size % degree == 0
    near = None if holds else f"{key} can be {in_words(near_divisors(sizes or [size], degree))}"
    return Rule(key=key, what=f"{name} {size:,} over {degree}", holds=holds, reason=reason, nearest=near)


def _world(setting: Setting) -> Iterator[Rule]:
    product = f"{setting.tp} x {setting.pp} x {setting.cp} x {setting.dp_shard} x {setting.dp_replicate}"
    whole = setting.world % setting.ranks_per_node == 0 or setting.world < setting.ranks_per_node
    yield Rule(
        key="parallel",
        what=f"tp x pp x cp x dp_shard x dp_replicate = {product} = {setting.world} ranks",
        holds=whole,
        reason="every rank has one place in each dimension",
        nearest=None
        if whole
        else f"the product can be {in_words(near_multiples(setting.ranks_per_node, setting.world))}",
    )
    batch, count = setting.micro_batch * setting.dp, setting.microbatches
    yield Rule(
        key="training.global_batch_size",
        what=f"{batch * count} samples = {setting.micro_batch} x dp {setting.dp} x {count}",
        holds=setting.microbatches > 0,
        reason="every data-parallel rank runs the same number of whole microbatches",
        nearest=None if setting.microbatches > 0 else f"use {batch}, or less data parallelism",
    )


def _widths(model: ModelConfig, vocab: int) -> dict[str, int]:
    """Return what tensor parallel ranks cut into equal parts."""
    widths = {"query heads": model.num_attention_heads, "key and value heads": model.kv_heads, "vocabulary": vocab}
    if model.moe_layers < model.num_hidden_layers:
        widths["feed-forward width"] = model.intermediate_size
    if model.n_shared_experts:
        widths["width of the shared experts"] = model.n_shared_experts * model.expert_width
    return widths


def _tensor(setting: Setting) -> Iterator[Rule]:
    if setting.tp == 1:
        return
    widths = _widths(setting.model, setting.vocab)
    for name, size in widths.items():
        reason = "each tensor parallel rank computes whole heads and equal widths"
        yield _divides("parallel.tp", setting.tp, size, name, reason, list(widths.values()))


def _experts(setting: Setting) -> Iterator[Rule]:
    model = setting.model
    if not model.is_moe:
        if setting.ep > 1 or setting.etp > 1:
            what = f"ep {setting.ep}, etp {setting.etp} of a dense model"
            yield Rule(
                key="parallel.ep",
                what=what,
                holds=False,
                reason="there are no experts to split",
                nearest="parallel.ep=1 parallel.etp=1",
            )
        return
    experts = model.n_routed_experts or 1
    if setting.ep > 1:
        yield _divides("parallel.ep", setting.ep, experts, "routed experts", "each rank holds whole experts")
        ranks, wanted = setting.tp * setting.cp * setting.dp, setting.ep * setting.etp
        holds = ranks % wanted == 0
        near = [size for size in near_divisors([ranks], wanted) if experts % size == 0]
        yield Rule(
            key="parallel.ep",
            what=f"ep x etp = {wanted} of the {ranks} ranks of a pipeline stage",
            holds=holds,
            reason="experts are spread over tensor, context and data parallel ranks",
            nearest=None if holds or not near else f"parallel.ep can be {in_words(near)}",
        )
    cut = setting.etp if setting.megatron else (setting.tp if setting.ep == 1 else 1)
    if cut > 1:
        key = "parallel.etp" if setting.megatron else "parallel.tp"
        yield _divides(key, cut, model.expert_width, "width of an expert", "ranks share an expert in equal parts")


def split_words(setting: Setting) -> str:
    """Say how layers lie on the stages: 16, 15, 15, 15; or 2 each."""
    if len(set(setting.chunks)) == 1:
        return f"{setting.chunks[0]} each"
    return ", ".join(str(size) for size in setting.chunks)


def _pipeline(setting: Setting) -> Iterator[Rule]:
    layers, stages = setting.model.num_hidden_layers, setting.pp * setting.vpp
    if setting.pp == 1:
        if setting.vpp > 1:
            reason = "model chunks take turns in a pipeline"
            yield Rule(
                key="parallel.vpp",
                what="several chunks without a pipeline",
                holds=False,
                reason=reason,
                nearest="parallel.vpp=1",
            )
        return
    yield Rule(
        key="parallel.pp",
        what=f"{layers} layers over {stages} stages: {split_words(setting)}",
        holds=stages <= layers and min(setting.chunks) > 0,
        reason="every stage has a layer",
        nearest=None if stages <= layers else f"pp x vpp can be at most {layers}",
    )
    if setting.megatron and len(set(setting.chunks)) > 1 and setting.chunks == tuple(even_split(layers, stages)):
        yield _uneven(setting, layers, stages)
    yield from _schedule(setting)


def _uneven(setting: Setting, layers: int, stages: int) -> Rule:
    """Megatron cuts unevenly only where it is told the first or the last stage."""
    first = even_split(layers, setting.pp)[0]
    fits = (layers - first) % (setting.pp - 1) == 0 and setting.vpp == 1
    key = "backend.config.transformer.num_layers_in_first_pipeline_stage"
    named = f"; or {', '.join(map(str, even_split(layers, setting.pp)))} with {key}={first}"
    near = in_words(near_divisors([layers], stages))
    return Rule(
        key="parallel.pp",
        what=f"{layers} layers over {stages} stages of different sizes",
        holds=False,
        reason="Megatron cuts layers into equal stages unless it is told the size of the first or the last",
        nearest=f"pp x vpp can be {near}{named if fits else ''}",
    )


def _schedule(setting: Setting) -> Iterator[Rule]:
    name, count = setting.schedule.lower(), setting.microbatches
    chunked = name not in _ONE_CHUNK
    wanted = "two" if name in _V_SHAPED else "several" if chunked else "one"
    fits = setting.vpp == 2 if name in _V_SHAPED else setting.vpp > 1 if chunked else setting.vpp == 1
    yield Rule(
        key="parallel.vpp",
        what=f"{setting.schedule} with {setting.vpp} model chunk(s) per rank",
        holds=fits,
        reason=f"it is made for {wanted} per rank",
        nearest=None
        if fits
        else f"parallel.vpp={2 if chunked else 1}, or parallel.pipeline_schedule="
        f"{'1F1B' if setting.vpp == 1 else 'Interleaved1F1B'}",
    )
    if name in _INTERLEAVED:
        rounds = max(1, count // setting.pp)
        fits = count % (setting.pp if setting.megatron else rounds) == 0
        near = in_words(near_multiples(setting.pp, count))
        yield Rule(
            key="training.global_batch_size",
            what=f"{count} microbatches over {setting.pp} ranks in turns",
            holds=fits,
            reason="chunks are computed in rounds of as many microbatches as ranks",
            nearest=None if fits else f"microbatches can be {near}",
        )
    elif name in ("1f1b", "dualpipev"):
        stages = setting.pp * setting.vpp
        fits = count >= stages or setting.megatron
        yield Rule(
            key="training.global_batch_size",
            what=f"{count} microbatches for {stages} stages",
            holds=fits,
            reason="torch's schedule wants a microbatch for each stage",
            nearest=None if fits else f"microbatches can be {stages} or more",
        )
    if setting.splits_backward and setting.recompute == "full":
        yield Rule(
            key="recompute.mode",
            what=f"{setting.schedule} with recompute.mode=full, which is slow",
            holds=True,
            reason="gradients of inputs and of weights are computed apart, and each recomputes the layer",
            nearest="recompute.mode=selective or none",
        )


def _sequence(setting: Setting) -> Iterator[Rule]:
    seq, key = setting.seq, "training.seq_length"
    pieces = (2 * setting.cp if setting.cp > 1 else 1) * setting.split_tokens
    if pieces == 1:
        return
    holds = seq % pieces == 0
    parts = [f"2 x cp {setting.cp}"] if setting.cp > 1 else []
    parts += [f"tp {setting.tp} (sequence parallel)"] if setting.split_tokens > 1 else []
    yield Rule(
        key=key,
        what=f"{seq:,} tokens over {pieces} = {' x '.join(parts)}",
        holds=holds,
        reason="ranks share a sequence in equal pieces, context parallel ranks an early and a late one each",
        nearest=None if holds else f"{key} can be {in_words(near_multiples(pieces, seq))}",
    )
    if setting.cp > 1 and not setting.megatron:
        block = 128 * setting.cp
        holds = seq % block == 0
        yield Rule(
            key=key,
            what=f"{seq:,} tokens over {block} = 128 x cp {setting.cp}",
            holds=holds,
            reason="torch's mask covers whole blocks of 128 queries on every context parallel rank",
            nearest=None if holds else f"{key} can be {in_words(near_multiples(block, seq))}",
        )


def _fp8(setting: Setting) -> Iterator[Rule]:
    if not setting.fp8:
        return
    model = setting.model
    widths = {
        "hidden width": model.hidden_size,
        "feed-forward width of a rank": model.intermediate_size // setting.tp,
        "width of a rank's heads": model.num_attention_heads * model.head_width // setting.tp,
        "tokens of a rank": setting.tokens // setting.split_tokens,
    }
    for name, size in widths.items():
        holds = size % _FP8_STEP == 0
        yield Rule(
            key="precision.fp8",
            what=f"{name} {size:,} over {_FP8_STEP}",
            holds=holds,
            reason="8-bit products read whole vectors of 16 numbers",
            nearest=None if holds else "a smaller parallel.tp, other sizes, or precision.fp8=null",
        )
