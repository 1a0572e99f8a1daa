"""Routers that torchtitan lacks: DeepSeek-V2's choice of expert groups, and the balance loss of its papers.

torchtitan's own router ranks a group by the sum of its two best experts (DeepSeek-V3) and has no balance loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.models.common.moe import TokenChoiceTopKRouter


class BalancedRouter(TokenChoiceTopKRouter):  # type: ignore[misc]
    """torchtitan's router with DeepSeek's group choice and sequence-wise balance loss.

    The loss of one sequence of T tokens over E experts, K per token, is `alpha * sum_i f_i P_i` with
    `f_i = E / (K T) * (tokens sent to i)` and `P_i` the mean score of i (DeepSeek-V2, arXiv 2405.04434;
    DeepSeek-V3, arXiv 2412.19437, with scores normalised over the experts after a sigmoid). Its mean over the sequences
    of the global batch is added to the gradient; the reported loss stays the cross entropy, as in the published code.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(TokenChoiceTopKRouter.Config):  # type: ignore[misc]
        """`group_experts` best experts rank a group; `balance_weight` is alpha over the global batch's sequences."""

        group_experts: int = 2
        balance_weight: float = 0.0

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.group_experts = config.group_experts
        self.balance_weight = config.balance_weight

    def forward(
        self, x_BLD: torch.Tensor, expert_bias_E: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Route (B, L, D) tokens; see the base class for the three results."""
        topk_scores, expert_ids, scores = super().forward(x_BLD, expert_bias_E)
        if self.balance_weight and self.training and torch.is_grad_enabled():
            loss = self.balance_weight * self._balance(scores, expert_ids)
            topk_scores = _AddLoss.apply(topk_scores, loss)
        return topk_scores, expert_ids, scores

    def _balance(self, scores: torch.Tensor, expert_ids: torch.Tensor) -> torch.Tensor:
        if self.score_func == "sigmoid":
            scores = scores / scores.sum(dim=-1, keepdim=True)
        batch, length, top_k = expert_ids.shape
        sent = torch.zeros(batch, scores.shape[-1], dtype=scores.dtype, device=scores.device)
        chosen = expert_ids.flatten(1)
        sent.scatter_add_(1, chosen, torch.ones_like(chosen, dtype=scores.dtype))
        fraction = sent * (scores.shape[-1] / (top_k * length))
        return torch.sum(fraction * scores.mean(dim=1))

    def _get_node_limited_routing_scores(self, scores_for_choice_BLE: torch.Tensor) -> torch.Tensor:
        batch, length, experts = scores_for_choice_BLE.shape
        grouped = scores_for_choice_BLE.view(batch, length, self.num_expert_groups, -1)
        rank = grouped.topk(self.group_experts, dim=-1)[0].sum(dim=-1)
        kept = torch.zeros_like(rank, dtype=torch.bool)
        kept.scatter_(-1, rank.topk(self.num_limited_groups, dim=-1, sorted=False)[1], True)
        return grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).view(batch, length, experts)


class _AddLoss(torch.autograd.Function):
    """Passes its first argument through; in the backward the second receives gradient one."""

    @staticmethod
    def forward(ctx: Any, carrier: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.loss_dtype = loss.dtype
        return carrier.view_as(carrier)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return grad, torch.ones((), dtype=ctx.loss_dtype, device=grad.device)
