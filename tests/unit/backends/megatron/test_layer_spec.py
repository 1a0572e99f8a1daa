"""What local layers are made of, and how experts of different ranks come to differ."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from megatron.core.transformer.moe.experts import SequentialMLP

from primus_hydra.backends.megatron import layer_spec
from primus_hydra.backends.megatron.latent import LocalLatentAttention
from primus_hydra.backends.megatron.layer_spec import DistinctExperts, spec_for
from primus_hydra.backends.megatron.native import core_config
from primus_hydra.backends.megatron.norm import LocalRMSNorm
from tests.unit.backends.megatron.jobs import LATENT, megatron_job
from tests.unit.backends.torchtitan.rank_context import context_for


@pytest.fixture(autouse=True)
def one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer for the pipeline groups, which a specification asks for."""
    monkeypatch.setattr(layer_spec, "get_gpt_decoder_block_spec", _whole(layer_spec.get_gpt_decoder_block_spec))


def _whole(original: Any) -> Any:
    return lambda *args, **kwargs: original(*args, **kwargs, pp_rank=0)


def layers_of(overrides: dict[str, Any]) -> list[Any]:
    job = megatron_job(overrides)
    config = core_config(job, context_for(job))
    block = spec_for(config.transformer, config.model, None)
    assert block.layer_norm is LocalRMSNorm
    return list(block.layer_specs)


def experts_of(layer: Any) -> Any:
    """Return the class of a layer's experts; parts are specifications up to megatron-core 0.16, then partial calls."""
    mlp = layer.submodules.mlp
    submodules = mlp.keywords.get("submodules") if isinstance(mlp, functools.partial) else mlp.submodules
    experts = getattr(submodules, "experts", None)
    return experts.func if isinstance(experts, functools.partial) else getattr(experts, "module", None)


def test_local_layers_have_norms_that_allow_sequence_parallelism() -> None:
    for layer in layers_of({}):
        assert layer.submodules.input_layernorm is layer.submodules.pre_mlp_layernorm is LocalRMSNorm


def test_latent_attention_and_experts_are_ours_where_the_model_has_them() -> None:
    dense, *sparse = layers_of(LATENT)
    assert {layer.submodules.self_attention.module for layer in (dense, *sparse)} == {LocalLatentAttention}
    assert experts_of(dense) is None
    assert {experts_of(layer) for layer in sparse} == {DistinctExperts}


def test_experts_of_different_ranks_start_apart_and_leave_the_stream_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(self: Any, count: int, config: Any, **_: Any) -> None:
        self.__dict__["drawn"] = torch.rand(count).tolist()

    monkeypatch.setattr(SequentialMLP, "__init__", draw)

    def experts(rank: int, count: int = 2) -> tuple[list[float], float]:
        torch.manual_seed(3)
        groups = SimpleNamespace(ep=SimpleNamespace(rank=lambda: rank))
        made = DistinctExperts(count, None, pg_collection=groups)  # type: ignore[arg-type]
        return made.drawn, torch.rand(()).item()

    assert experts(0) == experts(0)
    assert experts(0)[0] != experts(1)[0]
    assert experts(0)[1] == experts(1)[1] == experts(0, count=7)[1]
