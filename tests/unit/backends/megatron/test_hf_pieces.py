"""Megatron's packed matrices as pieces of Hugging Face tensors, under any number of tensor parallel ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from primus_hydra.backends.megatron.hf_pieces import Part, pieces_of
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.weights.tensors import Shape, expected_tensors
from tests.support import make_job
from tests.unit.weights.families import FAMILIES

VOCAB = 96
QKV = "decoder.layers.1.self_attention.linear_qkv.weight"


def model(**changes: Any) -> ModelConfig:
    return make_job({f"model.{name}": value for name, value in changes.items()}).model


Array = npt.NDArray[np.float64]


def tensors(shapes: dict[str, Shape]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def parameter(name: str, subject: ModelConfig, part: Part) -> Array:
    """Stack a parameter from its pieces."""
    shapes = expected_tensors(subject, VOCAB)
    source = tensors(shapes)
    return np.concatenate([source[piece.tensor][piece.where] for piece in pieces_of(name, subject, shapes, part)])


def parts(size: int) -> list[Part]:
    return [Part(rank=rank, size=size) for rank in range(size)]


@pytest.mark.parametrize(("heads", "kv_heads", "ranks"), [(4, 2, 1), (4, 2, 2), (8, 4, 2), (4, 4, 2), (8, 2, 4)])
def test_queries_keys_and_values_are_packed_group_by_group(heads: int, kv_heads: int, ranks: int) -> None:
    subject = model(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=16)
    source = tensors(expected_tensors(subject, VOCAB))
    prefix = "model.layers.1.self_attn."
    groups = [source[f"{prefix}{name}_proj.weight"].reshape(kv_heads, -1, 64) for name in "qkv"]

    packed = np.concatenate([parameter(QKV, subject, part) for part in parts(ranks)])

    assert np.array_equal(packed, np.concatenate(groups, axis=1).reshape(-1, 64))


def test_each_rank_holds_its_part_of_gate_and_up_one_after_the_other() -> None:
    subject = model()
    source = tensors(expected_tensors(subject, VOCAB))
    gate, up = (np.split(source[f"model.layers.0.mlp.{name}_proj.weight"], 2) for name in ("gate", "up"))

    for part in parts(2):
        own = parameter("decoder.layers.0.mlp.linear_fc1.weight", subject, part)
        assert np.array_equal(own, np.concatenate([gate[part.rank], up[part.rank]]))


@pytest.mark.parametrize(
    ("name", "tensor", "dim"),
    [
        ("embedding.word_embeddings.weight", "model.embed_tokens.weight", 0),
        ("output_layer.weight", "lm_head.weight", 0),
        ("decoder.layers.0.self_attention.linear_proj.weight", "model.layers.0.self_attn.o_proj.weight", 1),
        ("decoder.layers.1.mlp.linear_fc2.weight", "model.layers.1.mlp.down_proj.weight", 1),
    ],
)
def test_a_matrix_is_cut_along_one_side(name: str, tensor: str, dim: int) -> None:
    subject = model()
    whole = tensors(expected_tensors(subject, VOCAB))[tensor]

    assert np.array_equal(np.concatenate([parameter(name, subject, part) for part in parts(2)], axis=dim), whole)


def test_every_rank_has_the_whole_of_a_norm_wherever_it_is_kept() -> None:
    subject = model(architecture="qwen3")
    names = {
        "decoder.final_layernorm.weight": "model.norm.weight",
        "decoder.layers.1.input_layernorm.weight": "model.layers.1.input_layernorm.weight",
        "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight": "model.layers.1.input_layernorm.weight",
        "decoder.layers.1.mlp.linear_fc1.layer_norm_weight": "model.layers.1.post_attention_layernorm.weight",
        "decoder.layers.0.self_attention.k_layernorm.weight": "model.layers.0.self_attn.k_norm.weight",
    }
    source = tensors(expected_tensors(subject, VOCAB))

    for name, tensor in names.items():
        assert np.array_equal(parameter(name, subject, Part(rank=1, size=2)), source[tensor])


def test_a_tied_output_is_the_embedding() -> None:
    subject = model(tie_word_embeddings=True)
    shapes = expected_tensors(subject, VOCAB)

    (piece,) = pieces_of("output_layer.weight", subject, shapes, Part(rank=0, size=1))

    assert piece.tensor == "model.embed_tokens.weight"


@pytest.mark.parametrize(
    "name",
    ["decoder.layers.0.self_attention.linear_qkv.bias", "decoder.layers.0.self_attention.q_layernorm.weight", "mtp.x"],
)
def test_a_parameter_without_a_counterpart_has_no_pieces(name: str) -> None:
    assert pieces_of(name, model(), expected_tensors(model(), VOCAB), Part(rank=0, size=1)) == ()


@pytest.mark.parametrize("name", ["local_experts.3.linear_fc1.weight", "linear_fc1.weight3"])
def test_an_expert_is_found_by_its_number_in_either_way_of_keeping_experts(name: str) -> None:
    subject = model(**FAMILIES["mixtral"])
    source = tensors(expected_tensors(subject, VOCAB))
    prefix = "model.layers.1.block_sparse_moe.experts.3."
    gate, up = (np.split(source[f"{prefix}{matrix}.weight"], 2)[1] for matrix in ("w1", "w3"))

    own = parameter(f"decoder.layers.1.mlp.experts.{name}", subject, Part(rank=1, size=2))

    assert np.array_equal(own, np.concatenate([gate, up]))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("q_layernorm.weight", "q_a_layernorm.weight"),
        ("linear_q_up_proj.layer_norm_weight", "q_a_layernorm.weight"),
        ("kv_layernorm.weight", "kv_a_layernorm.weight"),
        ("linear_kv_up_proj.layer_norm_weight", "kv_a_layernorm.weight"),
    ],
)
def test_the_norms_of_both_latents_are_found_wherever_they_are_kept(name: str, tensor: str) -> None:
    subject = model(**FAMILIES["deepseek_v3"])
    source = tensors(expected_tensors(subject, VOCAB))

    own = parameter(f"decoder.layers.0.self_attention.{name}", subject, Part(rank=1, size=2))

    assert np.array_equal(own, source[f"model.layers.0.self_attn.{tensor}"])


def test_every_rank_has_the_whole_router_and_its_bias() -> None:
    subject = model(**FAMILIES["deepseek_v3"])
    source = tensors(expected_tensors(subject, VOCAB))
    names = {"weight": "weight", "expert_bias": "e_score_correction_bias"}

    for ours, theirs in names.items():
        own = parameter(f"decoder.layers.1.mlp.router.{ours}", subject, Part(rank=1, size=2))
        assert np.array_equal(own, source[f"model.layers.1.mlp.gate.{theirs}"])
