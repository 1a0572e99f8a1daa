"""Native keys of upstream's loop are its arguments, checked without torch against the data file."""

from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.backends.megatron.training.native_keys import check_arguments, load_arguments
from primus_hydra.backends.megatron.training.versions import RELEASES
from primus_hydra.backends.megatron.training.words import (
    _OWN,
    INVERTED,
    REFUSED,
    REFUSED_GROUPS,
    RENAMED,
    owned_arguments,
)
from primus_hydra.errors import HostError

ARGUMENTS = load_arguments(RELEASES[-1].name)


def told(config: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return key, fault and hint of each problem."""
    return [(problem.key or "", problem.what, problem.hint or "") for problem in check_arguments(config)]


def test_arguments_of_every_type_pass() -> None:
    config = {
        "attention_backend": "unfused",
        "overlap_grad_reduce": True,
        "ddp_bucket_size": 40_000_000,
        "moe_z_loss_coeff": 1e-3,
        "bias_dropout_fusion": False,
        "iterations_to_skip": [3, 4],
        "window_size": "(128,0)",
        "transformer_impl": "local",
        "profile_ranks": [0, 1],
    }
    assert told(config) == []


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("norm_epsilon", "did you mean model.rms_norm_eps?"),
        ("overlap_grad_reduces", "did you mean backend.config.overlap_grad_reduce"),
        ("overlap-grad-reduce", "did you mean backend.config.overlap_grad_reduce"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(key: str, hint: str) -> None:
    ((name, what, found),) = told({key: 1})
    assert (name, what) == (f"backend.config.{key}", "megatron.training has no such key here")
    assert found.startswith(hint)


@pytest.mark.parametrize(
    ("key", "value", "owner"),
    [
        ("lr", 1e-3, "optimizer.lr"),
        ("num_layers", 3, "model.num_hidden_layers"),
        ("num_experts", 8, "model.n_routed_experts"),
        ("train_iters", 3, "training.steps"),
        ("save", "there", "run.dir"),
        ("untie_embeddings_and_output_weights", True, "model.tie_word_embeddings"),
        ("num_virtual_stages_per_pipeline_rank", 2, "parallel.vpp"),
    ],
)
def test_what_a_neutral_key_says_is_refused_with_that_key(key: str, value: object, owner: str) -> None:
    assert told({key: value}) == [(f"backend.config.{key}", "has a neutral key", f"set {owner}")]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("exit_signal_handler", True, "the launcher ends, restarts and resumes a run"),
        ("rl_profile", True, "other programs of Megatron read it"),
        ("tokenizer_model", "x", "tokens are prepared before the ranks start"),
        ("mtp_num_layers", 1, "a model that no neutral key describes"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused_with_the_reason(key: str, value: object, reason: str) -> None:
    ((_, what, _),) = told({key: value})
    assert what.startswith("cannot be set: ")
    assert reason in what


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("num_workers", "two", "expects a whole number, not the text 'two'"),
        ("overlap_grad_reduce", 1, "expects true or false, not"),
        ("attention_backend", "flesh", "expects one of flash, fused, unfused, local, auto, not the text 'flesh'"),
        ("transformer_impl", "inference_optimized", "expects one of local, transformer_engine"),
        ("profile_ranks", ["first"], "expects a list"),
        ("rampup_batch_size", [8, 8, 800], "ignores it"),
        ("step_batch_size_schedule", "0:8 1K:16", "backend.config.batch.rampup"),
        ("ddp_bucket_size", None, ""),
    ],
)
def test_types_and_choices_are_checked(key: str, value: object, what: str) -> None:
    problems = told({key: value})
    assert len(problems) == (1 if what else 0)
    assert not what or what in problems[0][1]


def test_all_problems_come_at_once() -> None:
    assert len(told({"lr": 1, "norm_eps": 1, "num_workers": "x", "exit_signal": "SIGINT"})) == 4


def test_a_version_without_a_data_file_is_refused() -> None:
    with pytest.raises(HostError, match=r"0\.16\.1 is not supported"):
        check_arguments({}, "0.16.1")


def test_every_word_of_ours_is_an_argument_or_a_group_of_this_release() -> None:
    words = {*_OWN, *REFUSED, *RENAMED.values(), *INVERTED.values()}
    assert words - ARGUMENTS.keys() == set()
    assert REFUSED_GROUPS.keys() - {node["group"] for node in ARGUMENTS.values()} == set()


def test_no_argument_is_both_owned_and_refused() -> None:
    assert owned_arguments(ARGUMENTS).keys() & REFUSED.keys() == set()
