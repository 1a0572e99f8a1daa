"""A Megatron model has the parameters, first values, positions and routing that the neutral words promise."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.megatron.versions import installed_version
from primus_hydra.config.count import parameter_count
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.patching import PatchContext
from tests.unit.backends.megatron.jobs import LATENT, V3, megatron_job
from tests.unit.backends.torchtitan.rank_context import MOCK, context_for
from tests.unit.backends.torchtitan.titan_models import EVERY_NAME, shallow, shipped

VERSION = installed_version("megatron-core") or ""
NAMES_NORMS = not VERSION.startswith(("0.16", "0.17", "0.18"))
"""Whether Megatron itself decides which norms a latent attention has."""
REFUSED = {
    "deepseek_v2": "model.topk_group",
    "gpt_oss_20b": "model.architecture",
    "gpt_oss_120b": "model.architecture",
    "llama4_17b_16e": "model.architecture",
    "llama4_17b_128e": "model.architecture",
}
"""Models of this project that Megatron cannot build, and the key that says why."""
SHIPPED = tuple(name for name in EVERY_NAME if name not in REFUSED)
EXTENDED = {
    "v3": V3,
    "query_latent": {**LATENT, "model.q_lora_rank": 24},
    "no_shared_expert": {**LATENT, "model.n_shared_experts": 0},
    "all_dense": {**LATENT, "model.first_k_dense_replace": 4},
    "no_experts": {**LATENT, **dict.fromkeys([key for key in LATENT if "expert" in key or "moe" in key])},
    "tied": {"model.tie_word_embeddings": True},
}


@pytest.fixture(scope="module")
def one_rank() -> Iterator[None]:
    """The parallel groups of a single process."""
    from megatron.core import parallel_state

    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


@contextlib.contextmanager
def patches_of_latent_attention() -> Iterator[None]:
    """What the patches of latent attention do, taken back at the end."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    from primus_hydra.patches.megatron.attention import take_the_widths
    from primus_hydra.patches.megatron.latent import project_queries_without_a_norm

    context = PatchContext(job=megatron_job(), backend="megatron", backend_version=VERSION)
    with pytest.MonkeyPatch.context() as undone:
        # Setting what is there already notes it for the end.
        undone.setattr(DotProductAttention, "__init__", DotProductAttention.__init__)
        take_the_widths(context)
        if NAMES_NORMS:
            from megatron.core.transformer.mla_qk_norm_config import QKNormConfigResolver

            name = "_mla_fused_linear_or_default"
            undone.setattr(QKNormConfigResolver, name, getattr(QKNormConfigResolver, name))
            project_queries_without_a_norm(context)
        yield


def built(job: JobConfig, device: str, monkeypatch: pytest.MonkeyPatch) -> torch.nn.Module:
    """Build the whole model of a job; its large matrices lie on `device`, without first values on "meta"."""
    from primus_hydra.backends.megatron.layer_spec import spec_for
    from primus_hydra.backends.megatron.sections import Stage

    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device(device))
    monkeypatch.setattr(torch.cuda, "Stream", type("Stream", (), {}))
    config = MegatronAdapter(job).convert_config(context_for(job))
    spec = spec_for(config.transformer, config.model, None)
    with patches_of_latent_attention():
        model = config.model.build(config.transformer, spec, Stage(pre_process=True, post_process=True))
    assert isinstance(model, torch.nn.Module)
    return model


WITHOUT_VALUES = {
    "backend.config": {"transformer": {"use_cpu_initialization": False, "perform_initialization": False}},
    "training.seq_length": 64,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_has_the_counted_parameters(name: str, one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    job = dataclasses.replace(megatron_job(WITHOUT_VALUES), model=shallow(name))
    model = built(job, "meta", monkeypatch)
    counted = parameter_count(job.model, MOCK.vocab_size if job.model.vocab_size is None else None)
    assert sum(parameter.numel() for parameter in model.parameters()) == counted
    assert job.model.parameters in (None, counted)


@pytest.mark.parametrize("name", REFUSED)
def test_a_shipped_model_that_megatron_cannot_build_is_refused_with_the_reason(name: str) -> None:
    job = dataclasses.replace(megatron_job(WITHOUT_VALUES), model=shipped(name))
    problems = [problem for problem in MegatronAdapter(job).problems() if problem.key == REFUSED[name]]
    assert problems
    assert problems[0].hint


@pytest.mark.parametrize("name", EXTENDED)
def test_any_shape_has_the_counted_parameters(name: str, one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    job = megatron_job({**WITHOUT_VALUES, **EXTENDED[name]})
    model = built(job, "meta", monkeypatch)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(job.model, MOCK.vocab_size)


if NAMES_NORMS:

    def test_queries_without_a_latent_cannot_be_built_without_the_patch(
        one_rank: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("primus_hydra.patches.megatron.latent.project_queries_without_a_norm", lambda context: None)
        with pytest.raises(RuntimeError, match="linear_q_proj"):
            built(megatron_job({**WITHOUT_VALUES, **LATENT}), "meta", monkeypatch)


@pytest.mark.parametrize("overrides", [{}, {"model.architecture": "qwen3"}, LATENT], ids=["llama", "qwen3", "latent"])
def test_every_norm_has_the_models_epsilon(
    overrides: dict[str, Any], one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = megatron_job({**WITHOUT_VALUES, **overrides, "model.rms_norm_eps": 0.125})
    norms = [part for part in built(job, "meta", monkeypatch).modules() if isinstance(part, torch.nn.RMSNorm)]
    assert len(norms) > 2 * job.model.num_hidden_layers
    assert {norm.eps for norm in norms} == {0.125}


def test_the_initializer_range_is_the_spread_of_fresh_weights(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(megatron_job({"model.initializer_range": 0.5}), "cpu", monkeypatch)
    spread = {name: float(weight.std()) for name, weight in model.named_parameters() if weight.dim() == 2}
    ends = {name for name in spread if name.endswith(("linear_proj.weight", "linear_fc2.weight"))}
    assert len(ends) == 4
    for name, value in spread.items():
        # Two layers: the ends of branches are smaller by the root of 2 * 2.
        assert value == pytest.approx(0.25 if name in ends else 0.5, rel=0.1), name


@pytest.mark.parametrize("kind", [None, "llama3", "linear", "yarn"])
def test_positions_are_those_of_transformers(kind: str | None, one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {} if kind is None else {"model.rope_scaling.rope_type": kind, "model.rope_scaling.factor": 8.0}
    if kind in ("llama3", "yarn"):
        keys["model.rope_scaling.original_max_position_embeddings"] = 8192
    model: Any = built(megatron_job({**keys, "model.max_position_embeddings": 65536}), "cpu", monkeypatch)
    frequencies, factor = positions_of_transformers(kind, head_width=16)
    angles = torch.outer(torch.arange(64, dtype=torch.float32), frequencies)
    found = model.rotary_pos_emb(64)
    embedding, temperature = found if isinstance(found, tuple) else (found, 1.0)
    torch.testing.assert_close(embedding[:, 0, 0, :], torch.cat([angles, angles], dim=-1))
    assert temperature == pytest.approx(factor)


def positions_of_transformers(kind: str | None, *, head_width: int) -> tuple[torch.Tensor, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters: dict[str, Any] = {"rope_theta": 500000.0, "rope_type": kind or "default"}
    if kind:
        parameters |= {"factor": 8.0, "original_max_position_embeddings": 8192}
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    config = LlamaConfig(
        hidden_size=4 * head_width,
        num_attention_heads=4,
        max_position_embeddings=65536,
        rope_parameters=parameters,
    )
    if kind is None:
        return LlamaRotaryEmbedding(config).inv_freq, 1.0
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies, float(factor)


def transformer_of(overrides: dict[str, Any]) -> Any:
    job = megatron_job(overrides)
    return MegatronAdapter(job).convert_config(context_for(job)).transformer


def reference_routing(model: ModelConfig, logits: torch.Tensor) -> torch.Tensor:
    """Return the weight of every expert for every token, as the published DeepSeek code computes it."""
    scores = logits.softmax(-1) if model.scoring_func == "softmax" else logits.sigmoid()
    choice = scores
    if model.n_group and model.topk_group and model.topk_group < model.n_group:
        best = 1 if model.architecture == "deepseek_v2" else 2
        grouped = scores.view(len(scores), model.n_group, -1)
        kept = grouped.topk(best, dim=-1).values.sum(-1).topk(model.topk_group, dim=-1).indices
        mask = torch.zeros(grouped.shape[:2], dtype=torch.bool).scatter_(1, kept, True)
        choice = grouped.masked_fill(~mask.unsqueeze(-1), float("-inf")).view_as(scores)
    chosen = choice.topk(model.num_experts_per_tok or 0, dim=-1).indices
    weights = scores.gather(1, chosen)
    if model.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return torch.zeros_like(scores).scatter_(1, chosen, weights * model.routed_scaling_factor)


@pytest.mark.parametrize(
    "overrides",
    [
        LATENT,
        {**LATENT, "model.norm_topk_prob": True, "model.routed_scaling_factor": 2.5},
        {**LATENT, "model.num_experts_per_tok": 2, "model.n_group": 4, "model.topk_group": 2},
        {
            **LATENT,
            "model.num_experts_per_tok": 2,
            "model.n_group": 4,
            "model.topk_group": 2,
            "model.norm_topk_prob": True,
        },
        {**V3, "model.routed_scaling_factor": 2.5},
        {**V3, "model.num_experts_per_tok": 4, "model.n_group": 4, "model.topk_group": 2},
    ],
    ids=["v2", "v2_normalised", "v2_groups", "v2_groups_normalised", "v3", "v3_groups"],
)
def test_experts_are_chosen_and_weighed_as_published(overrides: dict[str, Any]) -> None:
    from megatron.core.transformer.moe.moe_utils import topk_routing_with_score_function

    model, fields = megatron_job(overrides).model, transformer_of(overrides)
    logits = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    weights, _ = topk_routing_with_score_function(
        logits,
        fields.moe_router_topk,
        use_pre_softmax=fields.moe_router_pre_softmax,
        num_groups=fields.moe_router_num_groups,
        group_topk=fields.moe_router_group_topk,
        scaling_factor=fields.moe_router_topk_scaling_factor,
        score_function=fields.moe_router_score_function,
    )
    torch.testing.assert_close(weights, reference_routing(model, logits))
