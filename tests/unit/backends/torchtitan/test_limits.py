from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter
from primus_hydra.backends.torchtitan.limits_0_3 import CHUNKED_LOSS, job_problems, layers_per_stage
from primus_hydra.errors import UserError
from tests.support import make_job

V_SHAPE = {
    "model.num_hidden_layers": 16,
    "training.global_batch_size": 16,
    "parallel.pp": 2,
    "parallel.vpp": 2,
    "parallel.pipeline_schedule": "ZBVZeroBubble",
}
DEEP = {"model.num_hidden_layers": 16, "training.global_batch_size": 16}


def keys_of_problems(overrides: dict[str, Any]) -> list[str | None]:
    return [problem.key for problem in TorchTitanAdapter(make_job(overrides)).problems()]


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"parallel.sharding": "none", "parallel.dp_shard": 2},
        {"parallel.pp": 2},
        {"parallel.pp": 2, "parallel.pipeline_schedule": "gpipe", "training.micro_batch_size": 4},
        {**DEEP, "parallel.pp": 2, "parallel.vpp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"},
        {**DEEP, "parallel.pp": 2, "parallel.vpp": 3, "parallel.pipeline_schedule": "Interleaved1F1B"},
        V_SHAPE,
        {**V_SHAPE, "backend.config": {"loss": {"global_vocab_size": 512}}},
        {"recompute.mode": "memory_budget", "compile.enable": True},
        {"optimizer.name": "adam", "optimizer.weight_decay": 0.0},
        {"lr_schedule.warmup_steps": 1, "lr_schedule.decay_steps": 3},
    ],
)
def test_a_job_that_torchtitan_can_train_has_no_problems(overrides: dict[str, Any]) -> None:
    assert keys_of_problems(overrides) == []


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"module": "dpo"}, "module"),
        ({"parallel.sharding": "optimizer"}, "parallel.sharding"),
        ({"parallel.etp": 2}, "parallel.etp"),
        ({"parallel.vpp": 2}, "parallel.vpp"),
        ({"parallel.pp": 2, "parallel.pipeline_schedule": "2F2B"}, "parallel.pipeline_schedule"),
        ({**DEEP, "parallel.pp": 2, "parallel.vpp": 2}, "parallel.vpp"),
        ({"parallel.pp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"}, "parallel.vpp"),
        ({**DEEP, "parallel.pp": 2, "parallel.vpp": 3, "parallel.pipeline_schedule": "DualPipeV"}, "parallel.vpp"),
        ({**DEEP, "parallel.pp": 2, "parallel.vpp": 7, "parallel.pipeline_schedule": "LoopedBFS"}, "parallel.vpp"),
        ({**V_SHAPE, "validation.enable": True}, "validation.enable"),
        ({**V_SHAPE, "backend.config": {"loss": {"_target_": CHUNKED_LOSS}}}, "backend.config.loss._target_"),
        ({"parallel.pp": 2, "training.micro_batch_size": 4}, "training.global_batch_size"),
        ({"optimizer.name": "adam"}, "optimizer.weight_decay"),
        ({"lr_schedule.warmup_steps": 2, "lr_schedule.decay_steps": 3}, "lr_schedule.decay_steps"),
        ({"recompute.mode": "memory_budget"}, "recompute.mode"),
        ({"compile.components": ["models"]}, "compile.components"),
        ({"precision.compute": "float16"}, "precision.compute"),
        ({"data.kind": "megatron", "data.path": "somewhere"}, "data.kind"),
        ({"precision.fp8": "tensorwise"}, "precision.fp8"),
        ({"precision.fp8": "rowwise", "precision.fp8_emulate": True, "compile.enable": True}, "precision.fp8_emulate"),
        ({"checkpoint.async_mode": "async_pinned"}, "checkpoint.async_mode"),
        ({"checkpoint.export_hf": True, "checkpoint.enable": False}, "checkpoint.export_hf"),
        ({"profiler.enable": True, "profiler.every": 3}, "profiler.every"),
        ({"profiler.memory_snapshot": True}, "profiler.memory_snapshot"),
        ({"model.attention_bias": True}, "model.attention_bias"),
        ({"backend.config": {"training": {"steps": 3}}}, "backend.config.training.steps"),
    ],
)
def test_what_torchtitan_cannot_do_is_said_before_the_launch(overrides: dict[str, Any], key: str) -> None:
    assert key in keys_of_problems(overrides)


@pytest.mark.parametrize(
    "overrides", [{"precision.compute": "float16"}, {"data.kind": "megatron", "data.path": "somewhere"}]
)
def test_what_only_megatron_can_do_names_it(overrides: dict[str, Any]) -> None:
    (problem,) = job_problems(make_job(overrides))
    assert "backend=megatron" in str(problem.hint)


def test_interleaved_microbatches_must_fill_equal_rounds() -> None:
    pipeline = {"parallel.pp": 4, "parallel.vpp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"}
    shape = {"model.num_hidden_layers": 16, "training.micro_batch_size": 1}
    assert keys_of_problems({**pipeline, **shape, "training.global_batch_size": 9}) == ["training.global_batch_size"]
    assert keys_of_problems({**pipeline, **shape, "training.global_batch_size": 8}) == []


@pytest.mark.parametrize(("layers", "pp", "vpp", "expected"), [(16, 2, 3, 3), (16, 2, 1, None), (30, 4, 4, 2)])
def test_layers_per_stage_give_the_wanted_stages(layers: int, pp: int, vpp: int, expected: int | None) -> None:
    schedule = "1F1B" if vpp == 1 else "Interleaved1F1B"
    overrides = {"model.num_hidden_layers": layers, "parallel.pp": pp, "parallel.vpp": vpp}
    assert layers_per_stage(make_job({**overrides, "parallel.pipeline_schedule": schedule})) == expected


def test_weights_to_start_from_are_looked_at(tmp_path: Path) -> None:
    assert keys_of_problems({"init_from": str(tmp_path / "elsewhere")}) == ["init_from"]
    assert keys_of_problems({"init_from": str(tmp_path)}) == ["init_from"]
    (tmp_path / ".metadata").touch()
    assert keys_of_problems({"init_from": str(tmp_path)}) == []


def test_an_unknown_stage_has_no_trainer() -> None:
    with pytest.raises(UserError, match="no training stage"):
        TorchTitanAdapter(make_job()).load_trainer_class("pretrian")


def test_problems_are_found_without_torch() -> None:
    code = (
        "import sys; from tests.support import make_job; "
        "from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter; "
        "TorchTitanAdapter(make_job()).problems(); "
        "sys.exit(sorted(name for name in sys.modules if name in ('torch', 'torchtitan')) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
