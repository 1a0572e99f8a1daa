"""Weights of a `transformers` model in Megatron's parameters, for tests: written apart from the loader of runs."""

from __future__ import annotations

from typing import Any

import torch

Weights = dict[str, torch.Tensor]


def copy_weights(source: Any, model: Any) -> None:
    """Set every parameter of an unsplit Megatron model to the weights of a `transformers` model; all must be found."""
    theirs: Weights = dict(source.named_parameters())
    config = model.config
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_value(name, theirs, config))


def _value(name: str, theirs: Weights, config: Any) -> torch.Tensor:
    plain = {
        "embedding.word_embeddings.weight": "model.embed_tokens.weight",
        "decoder.final_layernorm.weight": "model.norm.weight",
        "output_layer.weight": "lm_head.weight",
    }
    if name in plain:
        return theirs[plain[name]]
    _, _, number, rest = name.split(".", 3)
    layer = {key.removeprefix(f"model.layers.{number}."): value for key, value in theirs.items()}
    kind = rest.rpartition(".")[2]
    named = {
        "input_layernorm.weight": "input_layernorm.weight",
        "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
        "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
        "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
        "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
        "mlp.router.weight": "mlp.gate.weight",
        "mlp.linear_fc2.weight": "mlp.down_proj.weight",
    }
    if rest in named:
        return layer[named[rest]]
    if rest.startswith("self_attention.linear_qkv."):
        return _packed([layer[f"self_attn.{part}_proj.{kind}"] for part in "qkv"], config)
    if rest == "mlp.linear_fc1.weight":
        return torch.cat([layer["mlp.gate_proj.weight"], layer["mlp.up_proj.weight"]])
    expert = int(rest.split(".")[3])
    return layer["mlp.experts.gate_up_proj" if "fc1" in rest else "mlp.experts.down_proj"][expert]


def _packed(parts: list[torch.Tensor], config: Any) -> torch.Tensor:
    """Stack queries, keys and values group by group."""
    groups, width = config.num_query_groups, config.kv_channels
    cut = [part.view(groups, -1, width, *part.shape[1:]) for part in parts]
    return torch.cat(cut, dim=1).reshape(-1, *parts[0].shape[1:])
