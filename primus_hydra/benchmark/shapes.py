"""The matrix products and the attention of one rank of a model, from its configuration; pure.

Layers are cut as tensor parallelism cuts them: the first product of a pair by its columns, the second by its rows
(Shoeybi et al. 2019, Megatron-LM, section 3). A product of m x k and k x n takes 2*m*n*k operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from primus_hydra.config.schema import JobConfig, ModelConfig
from primus_hydra.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """One product: `count` of them in one forward of the model's layers on this rank (before pipelining)."""

    name: str
    m: int
    n: int
    k: int
    count: int

    @property
    def tflop(self) -> float:
        """Operations of one, in 10^12."""
        return 2.0 * self.m * self.n * self.k / 1e12


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """The attention of one layer on one rank; `value_dim` differs from `head_dim` in latent attention (MLA)."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    value_dim: int


def rank_tokens(job: JobConfig) -> int:
    """Return the tokens of one microbatch on one rank: sequence over context parallelism, times samples."""
    return _micro_batch(job) * job.training.seq_length // job.parallel.cp


def shape_problems(job: JobConfig) -> list[Problem]:
    """Return what the tensor-parallel size does not divide."""
    model, tp = job.model, job.parallel.tp
    widths = {
        "model.num_attention_heads": model.num_attention_heads,
        "model.intermediate_size": model.intermediate_size,
        "model.vocab_size": model.vocab_size or tp,
    }
    return [
        Problem(key=key, what=f"{width} is not a multiple of parallel.tp={tp}", hint="use a divisor of it")
        for key, width in widths.items()
        if width % tp
    ]


def gemms(job: JobConfig, vocab_size: int, *, tokens: int | None = None, backward: bool = False) -> list[Gemm]:
    """Return the products of a model's forward, and with `backward` those for the gradients of inputs and weights.

    `tokens` are the rows (default: those of one microbatch). A mixture's expert gets its even share of the tokens.
    """
    forward = list(_forward(job, tokens or rank_tokens(job), vocab_size))
    if not backward:
        return forward
    return [part for one in forward for part in (one, _to_inputs(one), _to_weights(one))]


def attention_shape(job: JobConfig) -> AttentionShape:
    """Return the attention of one rank's layer; keys and values that are fewer than the ranks are held by several."""
    model, tp = job.model, job.parallel.tp
    mla = model.kv_lora_rank is not None
    key_dim = (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0) if mla else model.head_width
    return AttentionShape(
        batch=_micro_batch(job),
        heads=max(1, model.num_attention_heads // tp),
        kv_heads=max(1, (model.num_attention_heads if mla else model.kv_heads) // tp),
        seq=job.training.seq_length // job.parallel.cp,
        head_dim=key_dim,
        value_dim=(model.v_head_dim or key_dim) if mla else key_dim,
    )


def _forward(job: JobConfig, tokens: int, vocab_size: int) -> Iterator[Gemm]:
    model, tp = job.model, job.parallel.tp
    layers, hidden = model.num_hidden_layers, model.hidden_size
    yield from _mla(model, tokens, tp) if model.kv_lora_rank is not None else _attention(model, tokens, tp)
    routed = _routed_layers(model)
    if layers > routed:
        yield from _gated("mlp", tokens, hidden, model.intermediate_size // tp, layers - routed)
    if routed:
        yield from _experts(job, tokens, routed)
    yield Gemm(name="lm_head", m=tokens, n=vocab_size // tp, k=hidden, count=1)


def _attention(model: ModelConfig, tokens: int, tp: int) -> Iterator[Gemm]:
    heads, kv = model.num_attention_heads // tp, max(1, model.kv_heads // tp)
    width, hidden, layers = model.head_width, model.hidden_size, model.num_hidden_layers
    yield Gemm(name="attention.qkv", m=tokens, n=(heads + 2 * kv) * width, k=hidden, count=layers)
    yield Gemm(name="attention.out", m=tokens, n=hidden, k=heads * width, count=layers)


def _mla(model: ModelConfig, tokens: int, tp: int) -> Iterator[Gemm]:
    """Latent attention: down-projections are whole on every rank, up-projections are cut by heads."""
    hidden, layers, heads = model.hidden_size, model.num_hidden_layers, model.num_attention_heads // tp
    nope, rope, value = (model.qk_nope_head_dim or 0), (model.qk_rope_head_dim or 0), (model.v_head_dim or 0)
    latent = model.kv_lora_rank or 0
    if model.q_lora_rank is None:
        yield Gemm(name="attention.q", m=tokens, n=heads * (nope + rope), k=hidden, count=layers)
    else:
        yield Gemm(name="attention.q_down", m=tokens, n=model.q_lora_rank, k=hidden, count=layers)
        yield Gemm(name="attention.q_up", m=tokens, n=heads * (nope + rope), k=model.q_lora_rank, count=layers)
    yield Gemm(name="attention.kv_down", m=tokens, n=latent + rope, k=hidden, count=layers)
    yield Gemm(name="attention.kv_up", m=tokens, n=heads * (nope + value), k=latent, count=layers)
    yield Gemm(name="attention.out", m=tokens, n=hidden, k=heads * value, count=layers)


def _gated(name: str, tokens: int, hidden: int, width: int, count: int) -> Iterator[Gemm]:
    """A gated feed-forward layer, its first two matrices side by side."""
    yield Gemm(name=f"{name}.gate_up", m=tokens, n=2 * width, k=hidden, count=count)
    yield Gemm(name=f"{name}.down", m=tokens, n=hidden, k=width, count=count)


def _experts(job: JobConfig, tokens: int, layers: int) -> Iterator[Gemm]:
    model, parallel = job.model, job.parallel
    experts, chosen = model.n_routed_experts or 1, model.num_experts_per_tok or 1
    here = max(1, experts // parallel.ep)
    # With expert parallelism the ranks' tokens meet: each of the fewer experts here gets those of ep ranks.
    share = max(1, tokens * chosen * parallel.ep // experts)
    width = model.expert_width // parallel.etp
    yield Gemm(name="router", m=tokens, n=experts, k=model.hidden_size, count=layers)
    yield from _gated("expert", share, model.hidden_size, width, layers * here)
    if model.n_shared_experts:
        shared = model.expert_width * model.n_shared_experts // parallel.tp
        yield from _gated("shared_expert", tokens, model.hidden_size, shared, layers)


def _routed_layers(model: ModelConfig) -> int:
    """Count the layers that route: after the leading dense ones, every `interleave_moe_layer_step`-th."""
    if not model.is_moe:
        return 0
    step = model.interleave_moe_layer_step
    numbers = range(model.first_k_dense_replace, model.num_hidden_layers)
    return sum((number + 1) % step == 0 for number in numbers)


def _to_inputs(one: Gemm) -> Gemm:
    return replace(one, name=f"{one.name} (input gradient)", n=one.k, k=one.n)


def _to_weights(one: Gemm) -> Gemm:
    return replace(one, name=f"{one.name} (weight gradient)", m=one.n, n=one.k, k=one.m)


def _micro_batch(job: JobConfig) -> int:
    micro = job.training.micro_batch_size
    return micro if isinstance(micro, int) else 1
