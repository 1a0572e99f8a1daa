"""What upstream's loop refuses of a neutral job, in the words of its own keys."""

from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.backends.megatron.training.adapter import MegatronTrainingAdapter
from primus_hydra.backends.megatron.training.limits import core_job, job_problems
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import UserError
from tests.support import make_job

UPSTREAM: dict[str, Any] = {
    "backend._target_": "primus_hydra.backends.megatron.training.adapter.MegatronTrainingAdapter",
    "backend.name": "megatron_training",
}


def job(**overrides: Any) -> JobConfig:
    return make_job(UPSTREAM | overrides)


def test_a_plain_job_is_fine() -> None:
    assert job_problems(job()) == []


def test_a_seed_that_upstream_does_not_take_is_refused() -> None:
    (problem,) = job_problems(job(**{"training.seed": 0}))
    assert (problem.key, problem.what) == ("training.seed", "upstream's loop wants a seed above zero")


def test_hints_name_upstreams_arguments() -> None:
    uneven = {"parallel.pp": 2, "model.num_hidden_layers": 3}
    (problem,) = job_problems(job(**uneven))
    assert "backend.config.decoder_last_pipeline_num_layers=N" in (problem.hint or "")


def test_the_choice_of_layers_is_all_that_the_other_rules_see_of_native_keys() -> None:
    chosen = job(**{"backend.config": {"transformer_impl": "local", "num_workers": 3}})
    assert core_job(chosen).backend.config == {"model": {"layer_implementation": "local"}}


def test_everything_that_stands_against_a_job_is_said_at_once() -> None:
    wrong = job(**{"module": "sft", "training.seed": 0, "backend.config": {"norm_epsilon": 1}})
    keys = [problem.key for problem in MegatronTrainingAdapter(wrong).problems()]
    assert keys == ["module", "training.seed", "backend.config.norm_epsilon"]
    with pytest.raises(UserError, match="no training stage 'sft'"):
        MegatronTrainingAdapter(wrong).load_trainer_class("sft")


def test_one_queue_is_asked_for_with_tensor_parallel_ranks_on_a_processor_too() -> None:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    assert name not in MegatronTrainingAdapter(job()).env_defaults()
    assert MegatronTrainingAdapter(job(**{"parallel.tp": 2})).env_defaults()[name] == "1"
