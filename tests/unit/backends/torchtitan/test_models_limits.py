"""What torchtitan cannot build is named before anything is started, with the key to change."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from primus_hydra.backends.torchtitan.models.limits import model_problems
from primus_hydra.config.build import build
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig

GROUPED: dict[str, Any] = {
    "name": "small",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
LATENT: dict[str, Any] = {
    **GROUPED,
    "architecture": "deepseek_v2",
    "num_key_value_heads": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
}


def keys(base: dict[str, Any], model: dict[str, Any], parallel: dict[str, Any], **lengths: int) -> set[str | None]:
    built, problems = build(ModelConfig, {**base, **model})
    assert built is not None, problems
    return {problem.key for problem in model_problems(built, ParallelConfig(**parallel), **lengths)}


def test_plain_models_have_no_problem() -> None:
    assert keys(GROUPED, {}, {"tp": 2, "cp": 2}, vocab_size=128, seq_length=256) == {"training.seq_length"}
    assert keys(GROUPED, {"max_position_embeddings": 512}, {"tp": 2, "cp": 2}, seq_length=256) == set()
    assert keys(LATENT, {}, {"ep": 4, "pp": 2}) == set()


@pytest.mark.parametrize(
    ("base", "model", "parallel", "key"),
    [
        (GROUPED, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {}, "model.rope_scaling.rope_type"),
        (
            GROUPED,
            {"architecture": "qwen3", "rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 8}},
            {},
            "model.rope_scaling.rope_type",
        ),
        (
            GROUPED,
            {"rope_scaling": {"rope_type": "yarn"}},
            {},
            "model.rope_scaling.original_max_position_embeddings",
        ),
        (GROUPED, {"attention_bias": True}, {}, "model.attention_bias"),
        (GROUPED, {"tie_word_embeddings": True}, {"pp": 2}, "parallel.pp"),
        (GROUPED, {"n_routed_experts": 8}, {}, "model.n_routed_experts"),
        (GROUPED, {"kv_lora_rank": 8}, {}, "model.kv_lora_rank"),
        (GROUPED, {"num_key_value_heads": 3}, {}, "model.num_key_value_heads"),
        (GROUPED, {"head_dim": 15}, {}, "model.head_dim"),
        (GROUPED, {}, {"tp": 3}, "parallel.tp"),
        (GROUPED, {"vocab_size": 127}, {"tp": 2}, "parallel.tp"),
        (GROUPED, {}, {"pp": 2, "vpp": 2}, "parallel.pp"),
        (LATENT, {"tie_word_embeddings": True}, {}, "model.tie_word_embeddings"),
        (LATENT, {"v_head_dim": None}, {}, "model.v_head_dim"),
        (LATENT, {"num_key_value_heads": 2}, {}, "model.num_key_value_heads"),
        (LATENT, {"head_dim": 10}, {}, "model.head_dim"),
        (LATENT, {"moe_intermediate_size": None}, {}, "model.moe_intermediate_size"),
        (LATENT, {"n_group": 3}, {}, "model.n_group"),
        (LATENT, {"n_group": 4, "topk_group": 1}, {}, "model.num_experts_per_tok"),
        (LATENT, {}, {"ep": 2, "etp": 2}, "parallel.etp"),
        (LATENT, {"aux_loss_alpha": 0.1}, {"tp": 2}, "model.aux_loss_alpha"),
    ],
)
def test_a_model_that_cannot_be_built_is_named(
    base: dict[str, Any], model: dict[str, Any], parallel: dict[str, Any], key: str
) -> None:
    assert keys(base, model, parallel) == {key}


def test_the_limits_are_checked_without_torch() -> None:
    code = "import sys, primus_hydra.backends.torchtitan.models.limits; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
