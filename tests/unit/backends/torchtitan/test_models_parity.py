"""A random Hugging Face model and its torchtitan counterpart give the same logits: rotary positions, norms, routing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchtitan.models.common.moe import GroupedExperts
from transformers import AutoConfig, AutoModelForCausalLM

from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.config.schema.model import ModelConfig
from tests.unit.backends.torchtitan.titan_models import BASE, LATENT, logits, neutral, on_cpu

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0}
V3 = {
    **LATENT,
    "architecture": "deepseek_v3",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "n_group": 4,
    "topk_group": 2,
}


def hugging_face(model: ModelConfig) -> Any:
    """Return the transformers model of the same keys, with weights large enough for every term to count."""
    skipped = {"name", "architecture", "rope_theta", "rope_scaling", "parameters", "source", "aux_loss_alpha"}
    values = {key: value for key, value in model.__dict__.items() if key not in skipped and value is not None}
    rope = {key: value for key, value in model.rope_scaling.__dict__.items() if value is not None}
    rope = {"rope_type": "default", **rope, "rope_theta": model.rope_theta}
    if model.architecture in ("llama", "qwen3"):
        values["head_dim"] = model.head_width
    if model.architecture == "deepseek_v2":
        values["topk_method"] = "group_limited_greedy" if (model.n_group or 1) > 1 else "greedy"
    values |= {"q_lora_rank": model.q_lora_rank, "num_key_value_heads": model.kv_heads}
    config = AutoConfig.for_model(model.architecture, **values, rope_parameters=rope)
    config._attn_implementation = "eager"
    built = AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * drawn if "norm" in name else 0.2 * drawn)
        for name, buffer in built.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
    return built


def published_weights(built: Any) -> dict[str, torch.Tensor]:
    """Return the weights under their published names, in which each expert has matrices of its own."""
    weights: dict[str, torch.Tensor] = {}
    for name, value in built.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(value):
                gate, up = both.chunk(2)
                prefix = name.removesuffix("gate_up_proj")
                weights |= {f"{prefix}{expert}.gate_proj.weight": gate, f"{prefix}{expert}.up_proj.weight": up}
        elif name.endswith("experts.down_proj"):
            prefix = name.removesuffix("down_proj")
            weights |= {f"{prefix}{expert}.down_proj.weight": down for expert, down in enumerate(value)}
        else:
            weights[name] = value
    return weights


def experts_in_full_precision(self: GroupedExperts, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The routed experts without torchtitan's fixed bfloat16, so that the routing can be compared closely."""
    parts = tokens.split(counts.tolist())
    return torch.cat(
        [
            (torch.nn.functional.silu(part @ w1.T) * (part @ w3.T)) @ w2.T
            for part, w1, w2, w3 in zip(parts, self.w1_EFD, self.w2_EDF, self.w3_EFD, strict=True)
        ]
    )


CASES: dict[str, dict[str, Any]] = {
    "llama": {**BASE, "rms_norm_eps": 0.05, "rope_theta": 500.0},
    "llama_wide_heads_tied": {**BASE, "head_dim": 32, "tie_word_embeddings": True},
    "llama_llama3_scaling": {**BASE, "rope_scaling": LLAMA3},
    "llama_yarn": {**BASE, "rope_scaling": YARN},
    "qwen3": {**BASE, "architecture": "qwen3", "head_dim": 24, "rms_norm_eps": 0.05, "rope_theta": 1e4},
    "qwen3_tied_yarn": {**BASE, "architecture": "qwen3", "tie_word_embeddings": True, "rope_scaling": YARN},
    "deepseek_v2": {
        **LATENT,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    },
    "deepseek_v2_groups": {
        **LATENT,
        "rms_norm_eps": 1e-6,
        "q_lora_rank": 24,
        "routed_scaling_factor": 3.0,
        "n_group": 4,
        "topk_group": 2,
        "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    },
    "deepseek_v3": {**V3, "rms_norm_eps": 1e-6},
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupedExperts, "forward", experts_in_full_precision)
    model = neutral(CASES[case])
    reference = hugging_face(model)
    spec = model_spec(model, vocab_size=128, seq_length=64)
    ours = on_cpu(spec).eval()
    adapter = spec.state_dict_adapter(spec.model, None)
    ours.load_state_dict(adapter.from_hf(published_weights(reference)), strict=True)
    tokens = torch.randint(128, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, got = reference(tokens).logits, logits(ours, tokens)
    assert expected.std() > 0.3
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
