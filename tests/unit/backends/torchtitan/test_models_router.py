"""The balance loss of DeepSeek reaches the router's gradient with the published value, and only in training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from primus_hydra.backends.torchtitan.models.router import BalancedRouter
from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.errors import UserError
from tests.unit.backends.torchtitan.titan_models import LATENT, neutral

TOKENS = torch.randn(2, 12, 64, generator=torch.Generator().manual_seed(3))


def router(global_batch_size: int = 2, **values: Any) -> BalancedRouter:
    model = neutral(LATENT, aux_loss_alpha=0.5, initializer_range=0.3, **values)
    spec = model_spec(model, vocab_size=128, seq_length=64, global_batch_size=global_batch_size)
    built = spec.model.layers[1].moe.router.build()
    with torch.no_grad():
        built.init_states()
    return built


def expected_loss(scores: torch.Tensor, expert_ids: torch.Tensor) -> torch.Tensor:
    """The formula of the paper, sequence by sequence and expert by expert."""
    batch, length, experts = scores.shape
    top_k = expert_ids.shape[-1]
    losses = []
    for sequence in range(batch):
        total = torch.zeros(())
        for expert in range(experts):
            fraction = experts / (top_k * length) * (expert_ids[sequence] == expert).sum()
            total = total + fraction * scores[sequence, :, expert].mean()
        losses.append(total)
    return 0.5 * torch.stack(losses).mean()


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_the_gradient_is_that_of_the_published_loss(scoring: str) -> None:
    built = router(scoring_func=scoring)
    topk_scores, _, _ = built(TOKENS)
    (topk_scores * 0).sum().backward()
    got = built.gate.weight.grad.clone()
    built.gate.weight.grad = None
    with torch.no_grad():
        _, expert_ids, _ = built(TOKENS)
    scores = built.gate(TOKENS)
    scores = scores.softmax(-1) if scoring == "softmax" else scores.sigmoid() / scores.sigmoid().sum(-1, keepdim=True)
    expected_loss(scores, expert_ids).backward()
    assert got.abs().max() > 1e-4
    torch.testing.assert_close(got, built.gate.weight.grad)


def test_the_loss_is_a_mean_over_the_global_batch() -> None:
    gradients = []
    for global_batch_size in (2, 8):
        torch.manual_seed(0)
        built = router(global_batch_size)
        (built(TOKENS)[0] * 0).sum().backward()
        gradients.append(built.gate.weight.grad)
    torch.testing.assert_close(gradients[0], 4 * gradients[1])


def test_outside_training_the_router_adds_nothing() -> None:
    built = router().eval()
    (built(TOKENS)[0] * 0).sum().backward()
    assert built.gate.weight.grad.abs().max() == 0


def test_a_balance_loss_without_a_batch_size_is_refused() -> None:
    with pytest.raises(UserError, match=r"training\.global_batch_size"):
        model_spec(neutral(LATENT, aux_loss_alpha=0.1), vocab_size=128, seq_length=64)
