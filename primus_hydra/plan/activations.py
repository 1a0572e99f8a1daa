"""What a forward keeps for the backward, in bytes of one rank and one microbatch.

Each number is a tensor that an operation saves. Widths are those of one rank: heads and feed-forward are cut by tensor
parallelism, norms and residuals by sequence parallelism, tokens by context parallelism (Korthikanti et al. 2022,
"Reducing Activation Recomputation in Large Transformer Models", 4.1 and 4.2; there for GELU with dropout, here
operation by operation for gated feed-forward without). Fused attention keeps queries, keys, values, its output and one
float32 per head and token, not the scores (Dao et al. 2022, "FlashAttention", 3.1 and B.2). On a processor other
kernels run, which keep more; the tests count their tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.plan.setting import Setting
from primus_hydra.plan.weights import LATENT


@dataclass(frozen=True)
class Kept:
    """Bytes of one layer and microbatch: `whole` without recomputation, `saved` with the setting's recomputation."""

    whole: float
    saved: float


def layer_kept(setting: Setting, sparse: bool) -> Kept:
    """Return what one layer keeps; `sparse` layers route tokens to experts."""
    whole = sum(_parts(setting, sparse).values())
    entry = setting.tokens * setting.model.hidden_size * setting.element / setting.split_tokens
    match setting.recompute:
        case "full":
            return Kept(whole, entry)
        case "selective":
            return Kept(whole, _selective(setting, sparse, whole, entry))
        case "memory_budget":
            return Kept(whole, entry + setting.memory_budget * max(0.0, whole - entry))
    return Kept(whole, whole)


def _selective(setting: Setting, sparse: bool, whole: float, entry: float) -> float:
    if not setting.megatron:
        return entry + _titan_saved(setting, sparse)
    if setting.engine:
        return whole  # the fused attention keeps no scores that recomputing the core attention would spare
    # Megatron recomputes the core attention from queries, keys and values (megatron-core `transformer/attention.py`).
    parts = _parts(setting, sparse)
    heads = (setting.model.num_attention_heads + setting.model.kv_heads) * _query(setting.model) / setting.tp
    # Values are a view, which holds the output of their whole projection; norms of heads in float32 hold it already.
    packed = 0.0 if _norm_holds_projection(setting) else _qkv_width(setting)
    kept = setting.tokens * (heads + packed) * setting.element
    return whole - parts["scores"] - parts["heads"] + kept


def _parts(setting: Setting, sparse: bool) -> dict[str, float]:
    feed_forward = _expert_parts(setting) if sparse else {"mlp": _gated(setting, setting.model.intermediate_size)}
    parts = {**_norms(setting), **_attention(setting), **feed_forward}
    return {name: size * setting.tokens for name, size in parts.items()}


def _norm(setting: Setting, width: float) -> float:
    """Return what a norm of `width` numbers keeps per token: its input and one float32.

    On a processor torch computes it step by step in float32, and keeps two tensors.
    """
    return 2 * width * 4 + 4 if setting.cpu else width * setting.element + 4


def _norms(setting: Setting) -> dict[str, float]:
    """Two norms per layer, and their outputs, which the products after them keep.

    torchtitan's products keep the gathered output, Megatron's the rank's own part, gathered again in the backward
    (Korthikanti et al. 2022, 4.2.2).
    """
    hidden, parts = setting.model.hidden_size, setting.split_tokens
    outputs = 2 * hidden * _input_bytes(setting) / (parts if setting.megatron else 1)
    return {"norms": 2 * _norm(setting, hidden) / parts, "inputs": outputs}


def _input_bytes(setting: Setting) -> float:
    """Bytes of a number that a product keeps of its input: Transformer Engine keeps the fp8 copy."""
    return 1 if setting.fp8 and setting.engine else setting.element


def _qkv_width(setting: Setting) -> float:
    model = setting.model
    if model.architecture in LATENT:
        query = (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)
        return model.num_attention_heads * (2 * query + (model.v_head_dim or 0)) / setting.tp
    return (model.num_attention_heads + 2 * model.kv_heads) * model.head_width / setting.tp


def _attention(setting: Setting) -> dict[str, float]:
    model, element = setting.model, setting.element
    heads = model.num_attention_heads / setting.tp
    value = model.v_head_dim or model.head_width if model.architecture in LATENT else model.head_width
    out = heads * value * element
    latent = _latent(setting) if model.architecture in LATENT else 0.0
    normed = 0.0
    if model.architecture.startswith("qwen3"):
        normed = (heads + model.kv_heads / setting.tp) * _norm(setting, model.head_width)
        if _norm_holds_projection(setting):
            normed += (_qkv_width(setting) - model.kv_heads / setting.tp * model.head_width) * element
    if setting.cpu and setting.megatron:
        return {**_local_scores(setting), "heads": 3 * heads * _query(model) * element, "out": out, "latent": latent,
                "head_norms": normed}  # fmt: skip
    keys = _keys_of_others(setting)
    fused = {"heads": _qkv_width(setting) * element + keys, "out": out, "statistics": heads * 4, "latent": latent,
             "head_norms": normed, "rope": _rope(setting)}  # fmt: skip
    if setting.fp8 and setting.engine:
        fused["out_copy"] = heads * value
    return {**fused, **_padding(setting, heads, value)} if setting.cpu else fused


def _norm_holds_projection(setting: Setting) -> bool:
    """Whether the norm of the keys keeps its input, which in Megatron is a view of the output of their projection.

    Where the norm makes a float32 copy first (half precision on a processor) it keeps that.
    """
    copies = setting.cpu and setting.element < 4
    return setting.megatron and setting.model.architecture.startswith("qwen3") and not copies


def _query(model: ModelConfig) -> int:
    if model.architecture in LATENT:
        return (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)
    return model.head_width


def _rope(setting: Setting) -> float:
    """torchtitan looks positions up, and its products with them keep the rows: one complex number per pair, in float32,
    or cosine and sine; Megatron's table is shared by all tokens of a batch and all layers."""
    if setting.megatron:
        return 0.0
    model = setting.model
    width = model.qk_rope_head_dim or 0 if model.architecture in LATENT else model.head_width
    return 4.0 * width * (2 if model.architecture.startswith("qwen") else 1)


def _keys_of_others(setting: Setting) -> float:
    """torchtitan gathers keys and values of all context parallel ranks; Megatron passes them on in a ring."""
    if setting.megatron or setting.cp == 1:
        return 0.0
    model = setting.model
    return (setting.cp - 1) * 2 * model.kv_heads * model.head_width / setting.tp * setting.element


def _padding(setting: Setting, heads: float, value: int) -> dict[str, float]:
    """What our attention on a processor keeps beside: the mask in the scores' format, values as wide as queries."""
    mask = float(setting.seq * setting.element)
    if setting.model.architecture not in LATENT:
        return {"mask": mask}
    query = _query(setting.model)
    return {"mask": mask, "padding": heads * (query - value + query) * setting.element}


def _local_scores(setting: Setting) -> dict[str, float]:
    """Megatron's plain attention keeps the probabilities of every pair, and the angles of queries and keys."""
    model = setting.model
    heads = model.num_attention_heads / setting.tp
    angles = 4 * _query(model) * setting.element / setting.micro_batch
    # The softmax is in float32; its result is kept a second time in the format of the product after it.
    each = 4 + (setting.element if setting.element < 4 else 0)
    return {"scores": heads * setting.seq * each, "rope": angles}


def _latent(setting: Setting) -> float:
    """Latents and their norms (DeepSeek-AI 2024, "DeepSeek-V2", 2.1); whole on every tensor parallel rank."""
    model, element = setting.model, setting.element
    ranks = [rank for rank in (model.q_lora_rank, model.kv_lora_rank) if rank]
    return sum(_norm(setting, rank) + rank * element for rank in ranks)


def _gated(setting: Setting, width: int) -> float:
    """Gate, up, and their product, which the last product keeps; eager code keeps the activated gate as well.

    Megatron's fused activation keeps only its input (Korthikanti et al. 2022, 4.1, for the MLP).
    """
    local, element = width / setting.tp, setting.element
    if setting.cpu and setting.megatron:
        return 5 * local * element
    if setting.megatron or setting.compiled:
        return 2 * local * element + local * _input_bytes(setting)
    return 4 * local * element


def _expert_parts(setting: Setting) -> dict[str, float]:
    """Tokens in the order of their experts, gate, up and product for each, outputs before they are weighted.

    Counts balanced experts: every rank gets as many tokens as it sends.
    """
    model, element = setting.model, setting.element
    copies, hidden = model.num_experts_per_tok or 1, model.hidden_size
    etp = setting.etp if setting.megatron else (setting.tp if setting.ep == 1 else 1)
    width = model.expert_width / etp
    inputs = hidden / (setting.split_tokens if etp == 1 else 1)
    each = inputs * element + inputs * 4 + (3 if setting.megatron or setting.compiled else 4) * width * element
    shared = (model.n_shared_experts or 0) * model.expert_width
    router = (model.n_routed_experts or 0) * 4 + copies * 24
    return {"experts": copies * each, "router": router / setting.split_tokens, "shared": _gated(setting, shared)}


def _titan_saved(setting: Setting, sparse: bool) -> float:
    """Outputs that torchtitan's SelectiveAC keeps: of attention, and of every second matrix product of a layer.

    (torchtitan `distributed/activation_checkpoint.py`: the first, third, ... product; the router's never; outputs of
    reduce-scatter and all-to-all as well.)
    """
    model, element = setting.model, setting.element
    widths = _products(setting, sparse)
    kept = sum(widths[::2]) * element
    heads = model.num_attention_heads / setting.tp
    value = (model.v_head_dim or model.head_width) if model.architecture in LATENT else model.head_width
    # The attention of a processor is not on torchtitan's list.
    attention = 0.0 if setting.cpu else heads * value * element + heads * 4
    routed = (model.num_experts_per_tok or 0) * (8 + element) + _exchanged(setting) if sparse else 0.0
    scattered = 2 * model.hidden_size * element / setting.tp if setting.tp > 1 and setting.sequence_parallel else 0.0
    return setting.tokens * (kept + attention + scattered + routed)


def _products(setting: Setting, sparse: bool) -> list[float]:
    """Return the output widths of a layer's matrix products on one rank, in the order in which they run."""
    model, tp = setting.model, setting.tp
    hidden = float(model.hidden_size)
    if model.architecture in LATENT:
        queries, rope = model.num_attention_heads * _query(model) / tp, model.qk_rope_head_dim or 0
        down = [float(model.q_lora_rank)] if model.q_lora_rank else []
        latent, value = float((model.kv_lora_rank or 0) + rope), model.v_head_dim or 0
        up = model.num_attention_heads * ((model.qk_nope_head_dim or 0) + value) / tp
        attention = [*down, queries, latent, up, hidden]
    else:
        attention = [_qkv_width(setting), hidden]
    shared = (model.n_shared_experts or 0) * model.expert_width
    width = (shared if sparse else model.intermediate_size) / tp
    return [*attention, *([width, width, hidden] if width else [])]


def _exchanged(setting: Setting) -> float:
    """Bytes per token that all-to-all brings to the experts and back, whose outputs SelectiveAC keeps."""
    if setting.ep == 1:
        return 0.0
    model = setting.model
    return 2.0 * (model.num_experts_per_tok or 1) * model.hidden_size * setting.element / setting.split_tokens
