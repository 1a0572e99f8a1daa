"""Losses are sums over the tokens that count, and documents become the bounds of packed sequences."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from primus_hydra.backends.megatron.batches import Batch
from primus_hydra.backends.megatron.forward import LOSS_SUM, ForwardStep, packed_documents

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr("megatron.core.parallel_state.get_context_parallel_group", lambda: dist.group.WORLD)
    monkeypatch.setattr("megatron.core.parallel_state.get_context_parallel_world_size", lambda: 1)
    monkeypatch.setattr("megatron.core.parallel_state.get_context_parallel_rank", lambda: 0)
    yield
    dist.destroy_process_group()


def a_batch(documents: torch.Tensor | None) -> Batch:
    tokens = torch.arange(8).view(2, 4)
    return Batch(
        tokens=tokens,
        labels=tokens + 1,
        loss_mask=torch.tensor([[1.0, 0, 1, 1], [1, 1, 1, 0]]),
        position_ids=torch.arange(4).expand(2, -1),
        documents=documents,
    )


def chunk(seen: dict[str, Any]) -> Any:
    def forward(tokens: torch.Tensor, position_ids: torch.Tensor, mask: Any, **rest: Any) -> torch.Tensor:
        seen.update(tokens=tokens, position_ids=position_ids, mask=mask, **rest)
        return rest["labels"].float()

    return forward


def test_the_loss_is_the_sum_over_the_tokens_that_count() -> None:
    seen: dict[str, Any] = {}
    output, loss_of = ForwardStep(CPU, pack_documents=False)(iter([a_batch(None)]), chunk(seen))
    loss, tokens, report = loss_of(output)
    assert (loss.item(), tokens.item()) == (1 + 3 + 4 + 5 + 6 + 7, 6)
    assert report[LOSS_SUM].tolist() == [26, 6]
    assert seen["tokens"].shape == (2, 4)
    assert "packed_seq_params" not in seen


def test_documents_are_packed_into_one_row_for_transformer_engine() -> None:
    seen: dict[str, Any] = {}
    documents = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.int32)
    output, loss_of = ForwardStep(CPU, pack_documents=True)(iter([a_batch(documents)]), chunk(seen))
    assert seen["tokens"].tolist() == [list(range(8))]
    assert seen["packed_seq_params"].cu_seqlens_q.tolist() == [0, 2, 4, 8]
    assert loss_of(output)[0].item() == 26


@pytest.mark.parametrize(
    ("documents", "bounds", "longest"),
    [
        ([[0, 0, 0, 0]], [0, 4], 4),
        ([[0, 1, 1, 2]], [0, 1, 3, 4], 2),
        ([[0, 0, 1, 1], [1, 1, 1, 2]], [0, 2, 4, 7, 8], 3),
    ],
)
def test_a_row_ends_its_last_document(documents: list[list[int]], bounds: list[int], longest: int) -> None:
    packed = packed_documents(torch.tensor(documents), CPU)
    assert packed.cu_seqlens_q.tolist() == packed.cu_seqlens_kv.tolist() == bounds
    assert (packed.max_seqlen_q, packed.cu_seqlens_q.dtype, packed.qkv_format) == (longest, torch.int32, "thd")


def test_norms_mark_their_weights_for_sequence_parallelism() -> None:
    from primus_hydra.backends.megatron.norm import local_norm
    from primus_hydra.errors import UserError

    def config(**changes: Any) -> Any:
        values = {"normalization": "RMSNorm", "sequence_parallel": True, "layernorm_zero_centered_gamma": False}
        return SimpleNamespace(**{**values, **changes})

    for name in ("RMSNorm", "LayerNorm"):
        norm = local_norm(config(normalization=name))(config(), 8, eps=1e-6)  # type: ignore[call-arg]
        assert [parameter.sequence_parallel for parameter in norm.parameters()] == [True] * (1 + (name == "LayerNorm"))  # type: ignore[attr-defined]
        assert norm.eps == 1e-6
    with pytest.raises(UserError, match="no norm called 'L2Norm'"):
        local_norm(config(normalization="L2Norm"))
    with pytest.raises(UserError, match="centred around zero"):
        local_norm(config())(config(layernorm_zero_centered_gamma=True), 8)  # type: ignore[call-arg]
