"""A random Hugging Face model and its Megatron counterpart give the same logits: biases, norms, positions, routing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from megatron.core.tensor_parallel import random
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
from transformers import AutoConfig, AutoModelForCausalLM

from primus_hydra.backends.megatron.cpu_torch import Stream
from primus_hydra.backends.megatron.masks import causal_mask
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.patches.megatron.experts import name_the_missing_gemm
from primus_hydra.patching import PatchContext
from primus_hydra.weights.hf_config import hf_config
from tests.unit.backends.megatron.hf_weights import copy_weights
from tests.unit.backends.megatron.jobs import megatron_job
from tests.unit.backends.megatron.test_models import VERSION, built, one_rank

__all__ = ["one_rank"]

VOCAB = 128
YARN = {
    "model.rope_scaling.rope_type": "yarn",
    "model.rope_scaling.factor": 4.0,
    "model.rope_scaling.original_max_position_embeddings": 16,
}
EXPERTS = {"model.n_routed_experts": 8, "model.num_experts_per_tok": 3}
MOE3 = {**EXPERTS, "model.architecture": "qwen3_moe", "model.moe_intermediate_size": 48, "model.head_dim": 24}
CASES: dict[str, dict[str, Any]] = {
    "qwen2": {"model.architecture": "qwen2", "model.rms_norm_eps": 0.05},
    "qwen2_tied_yarn": {"model.architecture": "qwen2", "model.tie_word_embeddings": True, **YARN},
    "qwen2_yarn_not_rounded": {"model.architecture": "qwen2", **YARN, "model.rope_scaling.truncate": False},
    "mixtral": {"model.architecture": "mixtral", **EXPERTS, "model.norm_topk_prob": True},
    "qwen3_moe": {**MOE3, "model.norm_topk_prob": True},
    "qwen3_moe_scores_of_all": {**MOE3, "model.norm_topk_prob": False},
    "qwen3_moe_some_dense": {
        **MOE3,
        "model.num_hidden_layers": 4,
        "model.first_k_dense_replace": 1,
        "model.interleave_moe_layer_step": 2,
    },
}


def hugging_face(model: ModelConfig) -> Any:
    """Return the transformers model of the same keys, with weights large enough for every term to count."""
    fields = hf_config(model, vocab_size=VOCAB, bos_id=None, eos_id=None, dtype="float32")
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    config._attn_implementation = "eager"
    reference = AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * drawn if "norm" in name else 0.2 * drawn)
    return reference


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a forward pass asks of a GPU be answered, as a patch does in a run."""
    monkeypatch.setattr(random.CudaRNGStatesTracker, "fork", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(MoEAlltoAllTokenDispatcher, "cuda_dtoh_stream", Stream())
    for module in (moe_utils, token_dispatcher):
        monkeypatch.setattr(module, "maybe_move_tensor_to_cpu", lambda value, *_, **__: value)


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    job = megatron_job({"model.vocab_size": VOCAB, "training.seq_length": 64, **CASES[case]})
    name_the_missing_gemm(PatchContext(job=job, backend="megatron", backend_version=VERSION))
    reference = hugging_face(job.model)
    without_gpu(monkeypatch)
    model: Any = built(job, "cpu", monkeypatch).eval()
    copy_weights(reference, model)
    tokens = torch.randint(VOCAB, (2, 64), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(64).expand_as(tokens)

    with torch.no_grad():
        expected, found = reference(tokens).logits, model(tokens, positions, causal_mask(64))

    assert expected.std() > 0.3
    torch.testing.assert_close(found.float(), expected, atol=1e-4, rtol=1e-4)
