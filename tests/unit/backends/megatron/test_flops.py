"""Size and operations per token are what torchtitan counts in the modules of the same model."""

from __future__ import annotations

import pytest
import torch

from primus_hydra.backends.megatron.flops import size_of
from primus_hydra.backends.megatron.native import core_config
from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.config.build import to_tree
from tests.unit.backends.megatron.jobs import megatron_job
from tests.unit.backends.torchtitan.rank_context import context_for
from tests.unit.backends.torchtitan.titan_models import shipped

LENGTH = 512
VOCABULARY = 4096


@pytest.mark.parametrize("name", ["llama3_tiny", "llama3_8b", "qwen3_0_6b", "deepseek_v2_lite"])
def test_both_backends_count_alike(name: str) -> None:
    model = shipped(name)
    rows = model.vocab_size or VOCABULARY
    titan = model_spec(model, vocab_size=rows, seq_length=LENGTH, global_batch_size=8).model
    with torch.device("meta"):
        expected = titan.get_nparams_and_flops(titan.build(), LENGTH)
    overrides = {f"model.{key}": value for key, value in to_tree(model).items()}
    job = megatron_job({**overrides, "model.vocab_size": rows, "training.seq_length": LENGTH})
    size = size_of(core_config(job, context_for(job)), LENGTH)
    assert (size.parameters, size.flops_per_token) == expected
