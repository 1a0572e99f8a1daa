"""Routed experts of any family as torchtitan's mixture: routing, balance and widths from the neutral keys.

Experts are balanced as published: DeepSeek-V3 by a router bias that torchtitan moves after each step (1e-3), all by the
balance loss when `aux_loss_alpha` is set. The others have no bias, so that their weights mean the same elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import cast

from torchtitan.models.common import FeedForward
from torchtitan.models.common.config_utils import make_moe_config, make_routed_experts_config, make_router_config
from torchtitan.models.common.moe import MoE, TokenChoiceTopKRouter

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.backends.torchtitan.models.router import BalancedRouter
from primus_hydra.backends.torchtitan.models.shape import Shape

_BIAS_SPEED = 1e-3


@dataclass(frozen=True, kw_only=True)
class FirstWeights:
    """How fresh weights of a mixture are drawn."""

    gate: init.ParamInit
    experts: init.ParamInit


def mixture(shape: Shape, weights: FirstWeights, shared: FeedForward.Config | None = None) -> MoE.Config:
    """Return the configuration of one layer's mixture; `shared` is the expert that every token visits."""
    model = shape.model
    experts, chosen = cast(int, model.n_routed_experts), cast(int, model.num_experts_per_tok)
    return make_moe_config(
        num_experts=experts,
        load_balance_coeff=_BIAS_SPEED if model.architecture == "deepseek_v3" else None,
        router=_router(shape, weights),
        routed_experts=make_routed_experts_config(
            dim=model.hidden_size,
            hidden_dim=model.expert_width,
            num_experts=experts,
            top_k=chosen,
            param_init=weights.experts,
            comm_backend="standard",
        ),
        shared_experts=shared,
    )


def _router(shape: Shape, weights: FirstWeights) -> TokenChoiceTopKRouter.Config:
    model = shape.model
    limited = (model.topk_group or 1) < (model.n_group or 1)
    config = make_router_config(
        dim=model.hidden_size,
        num_experts=cast(int, model.n_routed_experts),
        gate_param_init=weights.gate,
        top_k=cast(int, model.num_experts_per_tok),
        score_func=model.scoring_func,
        route_norm=model.norm_topk_prob,
        route_scale=model.routed_scaling_factor,
        num_expert_groups=model.n_group if limited else None,
        num_limited_groups=model.topk_group if limited else None,
    )
    single = limited and model.architecture == "deepseek_v2"
    if not single and not model.aux_loss_alpha:
        return config
    return BalancedRouter.Config(
        **{field.name: getattr(config, field.name) for field in fields(config)},
        group_experts=1 if single else 2,
        balance_weight=model.aux_loss_alpha / shape.global_batch_size if shape.global_batch_size else 0.0,
    )
