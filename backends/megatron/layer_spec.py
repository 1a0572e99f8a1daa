"""Which modules the transformer's layers are made of: Megatron's own (local), or Transformer Engine's.

Megatron decides layer by layer (dense or experts, MLA, norms of queries and keys). Changed in local layers: the norms
allow sequence parallelism, latent attention has the right gradients under tensor parallelism, and the experts of
different ranks start with different weights. Refused here: nothing; what
a combination lacks is refused by the adapter before torch is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterator
from typing import Any

import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.multi_latent_attention import MLASelfAttention
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import L2Norm
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from primus_hydra.backends.megatron.latent import LocalLatentAttention
from primus_hydra.backends.megatron.norm import local_norm
from primus_hydra.backends.megatron.sections import GptModel

_NORMS = ("input_layernorm", "pre_mlp_layernorm", "q_layernorm", "k_layernorm", "kv_layernorm")
"""Fields of a layer's and of its attention's submodules that name a norm."""


def spec_for(transformer: TransformerConfig, model: GptModel, vp_stage: int | None) -> TransformerBlockSubmodules:
    """Return the specification of the layers that this rank builds for virtual chunk `vp_stage`.

    Needs the parallel groups: which layers those are depends on the pipeline rank.
    """
    engine = model.layer_implementation == "transformer_engine"
    block = get_gpt_decoder_block_spec(
        transformer, use_transformer_engine=engine, normalization=transformer.normalization, vp_stage=vp_stage
    )
    return block if engine else _local(block, transformer)


def _local(block: TransformerBlockSubmodules, transformer: TransformerConfig) -> TransformerBlockSubmodules:
    norm = local_norm(transformer)
    layers = [_with_local_parts(layer, norm) for layer in block.layer_specs]
    if transformer.multi_latent_attention and transformer.q_lora_rank is None:
        layers = [_without_query_norm(layer) for layer in layers]
    return dataclasses.replace(block, layer_specs=layers, layer_norm=norm)


def _with_local_parts(layer: Any, norm: type[torch.nn.Module]) -> ModuleSpec:
    """Return the layer with our norms wherever it has one, our latent attention and our experts."""
    submodules = _with_norms(layer.submodules, norm)
    attention, mlp = _with_attention(submodules.self_attention, norm), _with_experts(submodules.mlp)
    return dataclasses.replace(layer, submodules=dataclasses.replace(submodules, self_attention=attention, mlp=mlp))


def _with_attention(attention: ModuleSpec, norm: type[torch.nn.Module]) -> ModuleSpec:
    module = LocalLatentAttention if attention.module is MLASelfAttention else attention.module
    return dataclasses.replace(attention, module=module, submodules=_with_norms(attention.submodules, norm))


def _without_query_norm(layer: ModuleSpec) -> ModuleSpec:
    """Return the layer without a norm of the queries' latent: where there is no latent, 0.19 refuses one."""
    attention = layer.submodules.self_attention
    plain = dataclasses.replace(attention.submodules, q_layernorm=IdentityOp)
    whole = dataclasses.replace(attention, submodules=plain)
    return dataclasses.replace(layer, submodules=dataclasses.replace(layer.submodules, self_attention=whole))


def _with_norms(submodules: Any, norm: type[torch.nn.Module]) -> Any:
    return dataclasses.replace(submodules, **dict.fromkeys(_named_norms(submodules), norm))


def _named_norms(submodules: Any) -> Iterator[str]:
    for name in _NORMS:
        if getattr(submodules, name, IdentityOp) not in (IdentityOp, None, L2Norm):
            yield name


def _with_experts(mlp: Any) -> Any:
    """Return the feed-forward part with our experts, if it has experts of its own kind.

    A part is a ModuleSpec up to megatron-core 0.16, and a partial call of its class after it.
    """
    if isinstance(mlp, functools.partial):
        submodules: Any = mlp.keywords.get("submodules")
        experts = getattr(submodules, "experts", None)
        if not isinstance(experts, functools.partial) or experts.func is not SequentialMLP:
            return mlp
        called = functools.partial(DistinctExperts, *experts.args, **experts.keywords)
        return functools.partial(mlp, submodules=dataclasses.replace(submodules, experts=called))
    experts = getattr(mlp.submodules, "experts", None)
    if experts is None or experts.module is not SequentialMLP:
        return mlp
    own = dataclasses.replace(experts, module=DistinctExperts)
    return dataclasses.replace(mlp, submodules=dataclasses.replace(mlp.submodules, experts=own))


class DistinctExperts(SequentialMLP):  # type: ignore[misc]
    """Experts one after the other, drawn from a stream of their own on every expert parallel rank.

    On a processor Megatron draws from torch's one generator, whose state all ranks of a stage share: the first expert
    of every rank would be the same. What is built after the experts draws as if they had not been.
    """

    def __init__(self, num_local_experts: int, config: TransformerConfig, *rest: Any, **named: Any) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_own_seed(named["pg_collection"].ep.rank()))
            super().__init__(num_local_experts, config, *rest, **named)


def _own_seed(expert_rank: int) -> int:
    drawn = int(torch.randint(1 << 62, (), device="cpu"))  # also where a model without memory is built
    return random.Random(f"{torch.initial_seed()} {drawn} {expert_rank}").getrandbits(62)
