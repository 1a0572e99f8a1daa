"""Weights of every family go from Hugging Face's layout into each backend and back, and compute the same there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from primus_hydra.config.build import dump_job
from primus_hydra.weights.hf_config import hf_config
from primus_hydra.weights.request import ConvertRequest, Kind, NativeKind
from tests.integration.conversions import convert_all
from tests.support import make_job
from tests.unit.weights.families import FAMILIES, dotted

VOCAB = 96
CASES = {**dict.fromkeys(FAMILIES, "float32"), **{f"{name} half": "bfloat16" for name in FAMILIES}}
"""Models by name, and their number format."""
NOISE = 1e-5
"""Of the logits' spread; float32 has 6e-8 for one operation."""


def save_model(folder: Path, family: str, dtype: str) -> None:
    """Write a random model in which every term counts, as `transformers` does."""
    torch.manual_seed(0)
    fields = hf_config(make_job(dotted(family)).model, vocab_size=VOCAB, bos_id=None, eos_id=None, dtype=dtype)
    config = AutoConfig.for_model(fields.pop("model_type"), **{**fields, "initializer_range": 0.1})
    model = AutoModelForCausalLM.from_config(config)
    for name, weight in model.state_dict().items():
        if name.endswith("bias"):
            weight.copy_(0.1 * torch.randn(weight.shape))
        elif "norm" in name:
            weight.copy_(1 + 0.1 * torch.randn(weight.shape))
    model.save_pretrained(folder, max_shard_size="100KB")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for case, dtype in CASES.items():
        family = case.split()[0]
        save_model(root / case, family, dtype)
        (root / f"{case}.yaml").write_text(dump_job(make_job({**dotted(family), "model.vocab_size": VOCAB})))
    return root


def conversion(models: Path, case: str, kind: NativeKind, *, back: bool) -> ConvertRequest:
    native = models / f"{kind} {case}"
    source, output = (native, models / f"{kind} {case} back") if back else (models / case, native)
    kinds: tuple[Kind, Kind] = (kind, "hf") if back else ("hf", kind)
    return ConvertRequest(
        job=str(models / f"{case}.yaml"),
        source=str(source),
        source_kind=kinds[0],
        to=kinds[1],
        output=str(output),
        dtype="keep",
        shard_bytes=50_000,
        verify="tensors" if back or case.endswith("half") else "logits",
    )


@pytest.fixture(scope="module", params=["torchtitan", "megatron"])
def answers(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[NativeKind, dict[str, tuple[Any, Any]]]:
    """The backend, and for each case what was said on the way there and on the way back."""
    kind: NativeKind = request.param
    requests = [conversion(models, case, kind, back=back) for case in CASES for back in (False, True)]
    said = convert_all(requests, tmp_path_factory.mktemp("requests"))
    return kind, dict(zip(CASES, zip(said[::2], said[1::2], strict=True), strict=True))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


@pytest.mark.parametrize("case", CASES)
def test_weights_come_back_bit_by_bit(case: str, models: Path, answers: tuple[NativeKind, dict[str, Any]]) -> None:
    kind, said = answers
    assert [answer for answer in said[case] if "result" not in answer] == []

    found, expected = tensors(models / f"{kind} {case} back"), tensors(models / case)

    assert {name: value.dtype for name, value in found.items()} == {
        name: value.dtype for name, value in expected.items()
    }
    assert [name for name, value in found.items() if not torch.equal(value, expected[name])] == []


@pytest.mark.parametrize("case", FAMILIES)
def test_the_backend_computes_what_transformers_does(case: str, answers: tuple[NativeKind, dict[str, Any]]) -> None:
    verified = answers[1][case][0]["result"]["verified"]

    assert verified["logits_spread"] > 0.1
    assert verified["logits_off"] < NOISE * max(1.0, verified["logits_spread"])


@pytest.mark.parametrize("case", CASES)
def test_files_are_bounded_and_memory_holds_a_few_tensors(
    case: str, answers: tuple[NativeKind, dict[str, Any]]
) -> None:
    for answer in answers[1][case]:
        result = answer["result"]
        assert result["files"] >= result["bytes"] // 50_000
        assert result["peak_bytes"] <= 4 * result["largest_bytes"]
