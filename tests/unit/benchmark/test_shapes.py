"""The products of a model: their work must be that of its parameters."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra import conf
from primus_hydra.benchmark.shapes import attention_shape, gemms, rank_tokens, shape_problems
from primus_hydra.config.build import build
from primus_hydra.config.count import active_parameter_count
from primus_hydra.config.schema import JobConfig, ModelConfig
from tests.support import make_job


def model(name: str) -> ModelConfig:
    tree: dict[str, Any] = yaml.safe_load((Path(conf.__file__).parent / "model" / f"{name}.yaml").read_text())
    found, problems = build(ModelConfig, {name: value for name, value in tree.items() if name != "defaults"})
    assert found is not None, problems
    return found


def job(name: str, **parallel: int) -> JobConfig:
    made = make_job({f"parallel.{key}": value for key, value in parallel.items()})
    training = dataclasses.replace(made.training, seq_length=8192, micro_batch_size=1)
    return dataclasses.replace(made, model=model(name), training=training)


def work(found: JobConfig, **options: Any) -> float:
    """Operations of one forward, over all layers."""
    return sum(one.count * one.tflop for one in gemms(found, found.model.vocab_size or 0, **options))


@pytest.mark.parametrize("name", ["llama3_8b", "llama3_1_70b", "qwen3_30b_a3b", "mixtral_8x7b", "deepseek_v2_lite"])
def test_the_work_of_all_products_is_two_operations_for_each_parameter_that_multiplies(name: str) -> None:
    found = job(name)
    vocab = found.model.vocab_size or 0
    # The input embedding is looked up and norms do not multiply matrices; both are small or left out here.
    multiplied = active_parameter_count(found.model) - (
        0 if found.model.tie_word_embeddings else vocab * found.model.hidden_size
    )
    expected = 2.0 * rank_tokens(found) * multiplied / 1e12

    assert work(found) == pytest.approx(expected, rel=2e-3)


def test_llama3_8b_has_its_known_shapes() -> None:
    shapes = {one.name: (one.m, one.n, one.k, one.count) for one in gemms(job("llama3_8b"), 128256)}

    assert shapes == {
        "attention.qkv": (8192, 6144, 4096, 32),
        "attention.out": (8192, 4096, 4096, 32),
        "mlp.gate_up": (8192, 28672, 4096, 32),
        "mlp.down": (8192, 4096, 14336, 32),
        "lm_head": (8192, 128256, 4096, 1),
    }


def test_tensor_parallelism_cuts_the_work_evenly() -> None:
    whole, cut = job("llama3_8b"), job("llama3_8b", tp=8)

    assert work(cut) == pytest.approx(work(whole) / 8)
    assert (attention_shape(cut).heads, attention_shape(cut).kv_heads) == (4, 1)


def test_keys_that_are_fewer_than_the_ranks_are_held_by_several() -> None:
    (qkv, *_) = gemms(job("llama3_8b", tp=16), 128256)

    assert qkv.n == (2 + 2) * 128


def test_the_backward_has_twice_the_work_of_the_forward() -> None:
    found = job("llama3_8b")

    assert work(found, backward=True) == pytest.approx(3 * work(found))


def test_a_size_that_cuts_unevenly_is_refused_by_name() -> None:
    assert [problem.key for problem in shape_problems(job("llama3_8b", tp=3))] == [
        "model.num_attention_heads",
        "model.intermediate_size",
    ]


def test_latent_attention_has_its_own_widths() -> None:
    one = attention_shape(job("deepseek_v2_lite"))

    assert (one.heads, one.kv_heads, one.head_dim, one.value_dim) == (16, 16, 192, 128)
