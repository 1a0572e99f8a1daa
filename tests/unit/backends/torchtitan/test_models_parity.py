"""A random Hugging Face model and its torchtitan counterpart give the same logits: rotary positions, norms, routing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torchtitan.models.common.moe import GroupedExperts
from transformers import AutoConfig, AutoModelForCausalLM

from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.weights.hf_config import hf_config
from tests.unit.backends.torchtitan.titan_models import BASE, LATENT, logits, neutral, on_cpu

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0}
ROUGH = {**YARN, "truncate": False}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 3}
MOE3 = {"architecture": "qwen3_moe", "moe_intermediate_size": 32, "first_k_dense_replace": 1}
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
    fields = hf_config(model, vocab_size=128, bos_id=None, eos_id=None, dtype="float32")
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
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


def published_weights(built: Any, folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights as a folder has them: there each expert has matrices of its own."""
    built.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


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
    "qwen2": {**BASE, "architecture": "qwen2", "rms_norm_eps": 0.05},
    "qwen2_tied_yarn": {**BASE, "architecture": "qwen2", "tie_word_embeddings": True, "rope_scaling": ROUGH},
    "mixtral": {**BASE, **EXPERTS, "architecture": "mixtral", "norm_topk_prob": True},
    "qwen3_moe": {**BASE, **EXPERTS, **MOE3, "norm_topk_prob": True, "head_dim": 24},
    "qwen3_moe_some_dense": {**BASE, **EXPERTS, **MOE3, "num_hidden_layers": 4, "interleave_moe_layer_step": 2},
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
def test_logits_equal_those_of_transformers(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(GroupedExperts, "forward", experts_in_full_precision)
    model = neutral(CASES[case])
    reference = hugging_face(model)
    spec = model_spec(model, vocab_size=128, seq_length=64)
    ours = on_cpu(spec).eval()
    adapter = spec.state_dict_adapter(spec.model, None)
    weights = published_weights(reference, tmp_path)
    ours.load_state_dict(adapter.from_hf(dict(weights)), strict=True)
    assert adapter.to_hf(ours.state_dict()).keys() == weights.keys()
    tokens = torch.randint(128, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, got = reference(tokens).logits, logits(ours, tokens)
    assert expected.std() > 0.3
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
