"""Each patch of Megatron mends what it says: the symptom without it, and its absence with it, on real ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from primus_hydra.patching.versions import satisfies

ROOT = Path(__file__).resolve().parents[3]
EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 48}
BALANCED = EXPERTS | {"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 1.0, "moe_z_loss_coeff": 0.1}
LATENT = {
    "multi_latent_attention": True,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 8,
    "v_head_dim": 12,
}
DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
SHARDED = {"distributed_optimizer": True}
SPLIT_EXPERTS = {"ep": 2, "transformer": EXPERTS | {"moe_token_dispatcher_type": "alltoall"}}
SPLIT_ROUTER = {"tp": 2, "sequence_parallel": True, "per_token_loss": True, "transformer": BALANCED}


def needed(versions: str) -> pytest.MarkDecorator:
    """Mark the symptom of a fault that only these versions have."""
    there = satisfies(version("megatron-core"), SpecifierSet(versions))
    return pytest.mark.skipif(not there, reason="cannot be had here: this Megatron has not the fault")


def without(*names: str) -> dict[str, Any]:
    """Leave patches out of a stage."""
    return {"disabled": [f"megatron.{name}" for name in names]}


STAGES: dict[str, dict[str, Any]] = {
    "scopes": {"action": "scopes"},
    "dense": {},
    "half": {"setup": {"dtype": "float16"}},
    "bfloat16_sharded": {"setup": SHARDED | {"dtype": "bfloat16"}},
    "dropout": {"setup": {"transformer": DROPOUT}},
    "recompute": {
        "setup": {
            "transformer": DROPOUT
            | {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        }
    },
    "noise": {"action": "noise", "setup": SHARDED | {"transformer": DROPOUT}},
    "noise_without": {
        "action": "noise",
        "setup": SHARDED | {"transformer": DROPOUT},
        **without("notices", "cpu-notices"),
    },
    "straight": {"action": "straight", "setup": SHARDED},
    "reload": {"action": "reload", "setup": SHARDED},
    "reload_without": {"action": "reload", "setup": SHARDED, **without("distopt-adam-state")},
    "resume": {"action": "resume", "setup": SHARDED, "world": 2},
    "resume_without": {"action": "resume", "setup": SHARDED, **without("distopt-adam-state")},
    "latent": {"setup": {"transformer": LATENT}},
    "latent_without": {"setup": {"transformer": LATENT}, **without("mla-local-attention")},
    "gemm_without": {"setup": {"transformer": EXPERTS}, **without("moe-te-gemm")},
    "router": {"setup": {"per_token_loss": True, "transformer": BALANCED}},
    "split_router": {"setup": SPLIT_ROUTER, "world": 2},
    "split_router_without": {"setup": SPLIT_ROUTER, "world": 2, **without("moe-balance-scale")},
    "split_experts": {"setup": SPLIT_EXPERTS, "world": 2},
    "split_experts_without": {"setup": SPLIT_EXPERTS, "world": 2, **without("moe-split-sizes")},
    "gathered_experts": {"setup": {"ep": 2, "transformer": EXPERTS}, "world": 2},
    "overlapped": {"setup": SHARDED | {"overlap": True}, "world": 2},
    "sharded": {"setup": SHARDED, "world": 2},
    "interleaved": {"setup": {"pp": 2, "vpp": 2, "transformer": {"num_layers": 4}}, "world": 2},
}
Seen = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The report of the last rank of a stage, by name."""
    folder = tmp_path_factory.mktemp("patches")
    (folder / "stages.json").write_text(json.dumps(STAGES))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.integration.megatron.patches_driver", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]

    def report(name: str) -> dict[str, Any]:
        files = sorted((folder / name).glob("rank-*.json"))
        assert files, done.stderr[-6000:]
        loaded: dict[str, Any] = json.loads(files[-1].read_text())
        return loaded

    return report


def trained(report: dict[str, Any]) -> list[float]:
    """The losses of a stage that must have gone well, and learnt."""
    assert report["error"] is None, report["error"]
    losses: list[float] = report["losses"]
    assert losses[-1] < losses[0] - 0.1
    return losses


def difference(left: list[float], right: list[float]) -> float:
    """The largest difference between two curves."""
    return max(abs(one - other) for one, other in zip(left, right, strict=True))


def test_without_the_cpu_patch_nothing_can_be_built(seen: Seen) -> None:
    assert "CUDA" in seen("bare")["error"] or "NVIDIA" in seen("bare")["error"]


def test_with_it_every_precision_trains_and_agrees(seen: Seen) -> None:
    dense = trained(seen("dense"))
    assert difference(dense, trained(seen("half"))) < 1e-2
    assert difference(dense, trained(seen("bfloat16_sharded"))) < 1e-2


def test_recomputation_draws_the_same_dropout(seen: Seen) -> None:
    dropout = trained(seen("dropout"))
    assert dropout != seen("dense")["losses"]
    assert trained(seen("recompute")) == dropout


def test_no_module_of_megatron_escapes_the_cpu_patch_even_if_imported_later(seen: Seen) -> None:
    report = seen("scopes")
    assert report["error"] is None
    assert report["more"]["late"] is False
    assert report["more"]["escaped"] == []


def test_nothing_outside_megatron_sees_the_cpu_patch(seen: Seen) -> None:
    more = seen("scopes")["more"]
    assert more["reached"] == []
    assert more["unlike_before"] == []
    assert more["type"] == "torch.FloatTensor"
    assert "CUDA" in more["current_device"] or "NVIDIA" in more["current_device"]


@pytest.mark.parametrize(
    "text",
    ["CPU RNG state changed", "full scope is deprecated", ".grad attribute", "reduce_scatter_tensor` is"],
)
def test_notices_are_dropped_and_only_they(seen: Seen, text: str) -> None:
    def messages(name: str) -> list[str]:
        more = seen(name)["more"]
        return [message for message in (*more["lines"], *more["warnings"]) if text in message]

    assert messages("noise_without")
    assert messages("noise") == []


def test_a_warning_about_the_run_passes(seen: Seen) -> None:
    assert "about the run" in seen("noise")["more"]["warnings"]


def test_an_optimizer_that_was_given_its_state_back_silently_takes_other_steps_without_the_patch(seen: Seen) -> None:
    straight = trained(seen("straight"))
    assert trained(seen("reload")) == straight
    wrong = seen("reload_without")
    assert wrong["error"] is None
    assert wrong["losses"][:2] == straight[:2]
    assert difference(wrong["losses"], straight) > 1e-3


def test_a_sharded_optimizer_resumes_bit_identically_in_both_formats(seen: Seen) -> None:
    report = seen("resume")
    assert report["error"] is None
    assert report["more"] == dict.fromkeys(("fully_reshardable", "dp_reshardable"), report["losses"])


def test_without_the_patch_a_sharded_optimizer_cannot_be_loaded(seen: Seen) -> None:
    assert seen("resume_without")["losses"]
    assert "AssertionError" in seen("resume_without")["error"]


def test_latent_attention_needs_no_transformer_engine(seen: Seen) -> None:
    assert "k_channels" in seen("latent_without")["error"]
    trained(seen("latent"))


def test_a_router_needs_no_transformer_engine(seen: Seen) -> None:
    trained(seen("router"))


@needed("<0.17")
def test_without_the_patch_a_router_needs_transformer_engine(seen: Seen) -> None:
    assert "te_general_gemm" in seen("gemm_without")["error"]


def test_experts_are_balanced_alike_however_the_sequence_is_split(seen: Seen) -> None:
    assert difference(trained(seen("split_router")), trained(seen("router"))) < 1e-5


@needed("<0.19")
def test_without_the_patch_experts_of_a_split_sequence_are_balanced_less(seen: Seen) -> None:
    assert difference(trained(seen("split_router_without")), trained(seen("router"))) > 1e-3


def test_gloo_exchanges_the_tokens_of_experts(seen: Seen) -> None:
    assert "TypeError" in seen("split_experts_without")["error"]
    assert trained(seen("split_experts")) == trained(seen("gathered_experts"))


def test_streams_of_the_processor_keep_the_order_of_work(seen: Seen) -> None:
    assert trained(seen("overlapped")) == trained(seen("sharded"))
    trained(seen("interleaved"))
