"""torchtitan's tensors as pieces of Hugging Face tensors: what differs is said, and nothing else is known."""

from __future__ import annotations

from primus_hydra.backends.torchtitan.hf_pieces import stored_parts
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.weights.tensors import expected_tensors
from tests.support import make_job
from tests.unit.weights.families import FAMILIES, dotted

VOCAB = 96


def model(family: str) -> ModelConfig:
    return make_job(dotted(family)).model


def test_only_llamas_queries_and_keys_are_kept_in_pairs() -> None:
    found = {}
    for family in (name for name in FAMILIES if not name.startswith("deepseek")):
        subject, expected = model(family), expected_tensors(model(family), VOCAB)
        for name in ("wq", "wk", "wv"):
            height = subject.head_width * (subject.num_attention_heads if name == "wq" else subject.kv_heads)
            parts = stored_parts(f"layers.0.attention.qkv_linear.{name}.weight", (height, 64), subject, expected)
            found[family, name] = parts[0].pairs if parts else None

    assert {key: pairs for key, pairs in found.items() if pairs} == {
        ("llama", "wq"): 4,
        ("llama", "wk"): 2,
        ("tied", "wq"): 4,
        ("tied", "wk"): 2,
    }


def test_routed_experts_are_one_part_each() -> None:
    subject = model("mixtral")
    parts = stored_parts(
        "layers.1.moe.routed_experts.inner_experts.w2_EDF", (4, 64, 128), subject, expected_tensors(subject, VOCAB)
    )

    assert parts is not None
    assert [part.offset for part in parts] == [(expert, 0, 0) for expert in range(4)]
    assert parts[3].pieces[0].tensor == "model.layers.1.block_sparse_moe.experts.3.w2.weight"


def test_the_output_of_a_tied_model_is_its_embedding() -> None:
    subject = model("tied")
    (part,) = stored_parts("lm_head.weight", (VOCAB, 64), subject, expected_tensors(subject, VOCAB)) or ()

    assert part.pieces[0].tensor == "model.embed_tokens.weight"


def test_a_tensor_without_a_counterpart_is_not_known() -> None:
    subject = model("llama")
    expected = expected_tensors(subject, VOCAB)

    for key in ("optimizer.step", "layers.0.attention.sinks", "layers.0.attention.q_norm.weight", "mtp.x"):
        assert stored_parts(key, (4,), subject, expected) is None
