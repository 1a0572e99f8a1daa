from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter
from primus_hydra.config.build import schema_keys
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import UserError
from tests.support import make_job
from tests.unit.backends.torchtitan.rank_context import Notes, context_for
from tests.unit.weights.model_folder import VOCAB, write_folder

NOT_FOR_THE_BACKEND = (
    "module",
    "resume",
    "env",
    "task",
    "backend.",
    "launch.",
    "metrics.objective",
    "network.",
    "determinism.",
    "hooks.",
    "run.",
    "tracker.",
    "patches.",
    "platform.",
    # The data package turns these into samples in their order.
    "data.",
    "tokenizer.",
    # The models have tests of their own.
    "model.",
)
CARRIED_OUT_BY_THE_TRAINER = {"checkpoint.export_hf", "checkpoint.leave_free_gib"}
TESTED_BELOW = {"init_from", "precision.reduce", "precision.fp8", "precision.fp8_exclude", "precision.fp8_emulate"}
COMPANIONS: dict[str, dict[str, Any]] = {
    "recompute.memory_budget": {"recompute.mode": "memory_budget", "compile.enable": True},
    "recompute.mode": {"compile.enable": True},
    "optimizer.name": {"optimizer.weight_decay": 0.0},
    "training.seq_length": {"model.max_position_embeddings": 128},
    "checkpoint.export_dtype": {"checkpoint.export_hf": True},
    "parallel.sequence_parallel": {"parallel.tp": 2},
    "parallel.pipeline_schedule": {"parallel.pp": 2},
    "parallel.sharding": {"parallel.dp_shard": 2},
    "parallel.cp": {"training.seq_length": 256},
}
VALUES: dict[str, list[Any]] = {
    "parallel.pipeline_schedule": ["GPipe"],
    "compile.components": [["model"]],
    "compile.backend": ["eager"],
    "lr_schedule.decay_steps": [2],
    "lr_schedule.warmup_steps": [2],
    "training.global_batch_size": [8],
    "training.micro_batch_size": [1],
    "parallel.dp_shard": [2],
    "parallel.sharding": ["none", "optimizer"],
    "parallel.ep": [2],
}


def translate(overrides: dict[str, Any] | None = None, **changes: Any) -> Any:
    job = make_job(overrides)
    return TorchTitanAdapter(job).convert_config(context_for(job, **changes))


def plain(value: Any) -> Any:
    """Return configuration values as comparable data; callables say nothing of a value and are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return (type(value).__qualname__, fields)
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if callable(value) else value


def other_values(kind: Any, default: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return [choice for choice in get_args(kind) if choice != default]
    members = [member for member in get_args(kind) if member is not type(None)]
    if members and get_origin(kind) not in (list, dict):
        return other_values(members[0], default)
    if kind is bool:
        return [not default]
    if kind is int:
        return [(default or 0) + 1]
    if kind is float:
        return [default / 2 if default else 0.5]
    raise AssertionError(f"say which values to try for {kind}")


def leaf(job: JobConfig, dotted: str) -> Any:
    value: Any = job
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def training_keys() -> list[str]:
    return [key for key in schema_keys(JobConfig) if not key.startswith(NOT_FOR_THE_BACKEND)]


@pytest.mark.parametrize("key", [key for key in training_keys() if key not in TESTED_BELOW])
def test_every_training_key_is_translated_or_refused(key: str) -> None:
    base = make_job(COMPANIONS.get(key))
    kind, _ = schema_keys(JobConfig)[key]
    before = plain(translate(COMPANIONS.get(key)))
    for value in VALUES.get(key) or other_values(kind, leaf(base, key)):
        overrides = {**COMPANIONS.get(key, {}), key: value}
        job = make_job(overrides)
        problems = [*layout_of(job)[1], *TorchTitanAdapter(job).problems()]
        if problems:
            assert any(str(problem.key).startswith(key) for problem in problems), (value, problems)
        elif key not in CARRIED_OUT_BY_THE_TRAINER:
            assert plain(translate(overrides)) != before, f"{key}={value} changes nothing"


def test_the_parent_knows_the_recipes_of_the_models() -> None:
    from primus_hydra.backends.torchtitan.limits_0_3 import FP8_RECIPES
    from primus_hydra.backends.torchtitan.models.float8 import RECIPES

    assert FP8_RECIPES == RECIPES


def test_fp8_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_hydra.backends.torchtitan import native_0_3

    given: dict[str, Any] = {}
    original = native_0_3.model_spec

    def spy(model: Any, *, precision: Any, **rest: Any) -> Any:
        given.update(rest, precision=precision)
        return original(model, **rest)

    monkeypatch.setattr(native_0_3, "model_spec", spy)
    settings = {"precision.fp8": "rowwise", "precision.fp8_exclude": ["wq"], "compile.enable": True}
    translate(settings)
    assert given["precision"] == make_job(settings).precision
    assert given["compiled"] is True


def test_the_only_reduction_format_is_passed_on() -> None:
    assert translate().training.mixed_precision_reduce == make_job().precision.reduce


def test_weights_to_start_from_are_loaded_alone_and_only_in_a_fresh_run(tmp_path: Path) -> None:
    (tmp_path / ".metadata").touch()
    config = translate({"init_from": str(tmp_path)}).checkpoint
    assert (config.initial_load_path, config.initial_load_model_only) == (str(tmp_path), True)
    assert config.load_step == -1
    assert translate({"init_from": str(tmp_path)}, resume_from=7).checkpoint.load_step == 7


def test_hugging_face_weights_are_read_by_torchtitans_own_conversion(tmp_path: Path) -> None:
    source = {"init_from": f"hf:{write_folder(tmp_path, make_job())}", "model.vocab_size": VOCAB}

    config = translate(source).checkpoint
    assert (config.initial_load_path, config.initial_load_in_hf) == (str(tmp_path), True)
    assert config.initial_load_model_only

    config = translate({**source, "init_from": f"hf:{tmp_path}/gone", "launch.check_paths": False}, resume_from=7)
    assert (config.checkpoint.initial_load_path, config.checkpoint.initial_load_in_hf) == (None, False)
    with pytest.raises(UserError, match="init_from: hidden_size is 64 in the folder"):
        translate({**source, "model.hidden_size": 128})


def test_missing_weights_are_refused_by_the_rank(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="init_from"):
        translate({"init_from": str(tmp_path / "nowhere")})


def test_weights_are_loaded_even_if_nothing_is_saved(tmp_path: Path) -> None:
    (tmp_path / ".metadata").touch()
    config = translate({"init_from": str(tmp_path), "checkpoint.enable": False}).checkpoint
    assert (config.enable, config.load_only) == (True, True)
    assert not translate({"checkpoint.enable": False}).checkpoint.enable


def test_the_last_checkpoint_can_be_resumed() -> None:
    assert translate().checkpoint.last_save_model_only is False


@pytest.mark.parametrize(("keep", "torchtitans"), [(0, 0), (1, 2), (2, 2), (5, 5)])
def test_any_number_of_checkpoints_can_be_kept(keep: int, torchtitans: int) -> None:
    config = translate({"checkpoint.keep": keep}).checkpoint
    assert (config.keep, config.keep_latest_k) == (keep, torchtitans)


def test_checkpoints_are_kept_for_good_at_multiples() -> None:
    assert translate({"checkpoint.keep_every": 500}).checkpoint.keep_every == 500
    assert translate().checkpoint.keep_every is None


def test_checkpoints_land_in_the_run_directory() -> None:
    config = translate()
    assert (Path(config.dump_folder) / config.checkpoint.folder) == Path("some-run/checkpoints")


def test_batches_are_accumulated_without_a_pipeline_and_cut_within_one() -> None:
    batch = {"training.global_batch_size": 8, "training.micro_batch_size": 2}
    assert translate(batch).training.local_batch_size == 2
    piped = translate({**batch, "parallel.pp": 2})
    assert piped.training.local_batch_size == 8
    assert piped.parallelism.pipeline_parallel_microbatch_size == 2


def test_sharding_none_copies_on_every_data_parallel_rank() -> None:
    ranks = {"parallel.dp_shard": 2, "parallel.dp_replicate": 2, "training.micro_batch_size": 1}
    assert translate(ranks).parallelism == translate({**ranks, "parallel.sharding": "full"}).parallelism
    full = translate(ranks).parallelism
    none = translate({**ranks, "parallel.sharding": "none"}).parallelism
    assert (full.data_parallel_shard_degree, full.data_parallel_replicate_degree) == (2, 2)
    assert (none.data_parallel_shard_degree, none.data_parallel_replicate_degree) == (1, 4)


def rate_at(overrides: dict[str, Any], step: int) -> float:
    """Return the factor of the peak learning rate in a step counted from 1, as torchtitan's schedule computes it."""
    from torch import nn, optim

    config = translate(overrides)
    optimizer = optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    schedule = config.lr_scheduler.build(optimizers=[optimizer], training_steps=config.training.steps)
    factor: Callable[[int], float] = schedule.schedulers[0].lr_lambdas[0]
    return factor(step - 1)


@pytest.mark.parametrize(
    ("decay", "steps", "step", "expected"),
    [
        ("constant", None, 5, 0.5),
        ("constant", None, 100, 1.0),
        ("cosine", None, 100, 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 89 / 90))),
        ("linear", 20, 80, 1.0),
        ("linear", 20, 91, 0.55),
        ("linear", 0, 100, 1.0),
        ("sqrt", 20, 91, 0.1 + 0.9 * (1 - math.sqrt(0.5))),
    ],
)
def test_the_learning_rate_follows_the_schedule(decay: str, steps: int | None, step: int, expected: float) -> None:
    overrides = {"training.steps": 100, "lr_schedule.warmup_steps": 10, "lr_schedule.decay": decay}
    assert rate_at({**overrides, "lr_schedule.decay_steps": steps}, step) == pytest.approx(expected)


def test_native_keys_lie_over_the_translation() -> None:
    native = {"training": {"gc_freq": 7}, "loss": {"num_chunks": 2}, "override": {"imports": [["a.b", {"c": 1}]]}}
    config = translate({"backend.config": native})
    assert (config.training.gc_freq, config.training.seq_len) == (7, 64)
    assert config.loss.num_chunks == 2
    assert config.override.imports == [("a.b", {"c": 1})]


def test_named_parameter_groups_come_before_the_neutral_optimizer() -> None:
    group = {"pattern": "norm", "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": 0.1, "weight_decay": 0.0}}
    groups = translate({"backend.config": {"optimizer": {"param_groups": [group]}}}).optimizer.param_groups
    assert [group.pattern for group in groups] == ["norm", ".*"]
    assert groups[1].optimizer_kwargs["lr"] == make_job().optimizer.lr


def test_a_target_chooses_the_implementation_and_inherits_values() -> None:
    target = "torchtitan.hf_datasets.text_datasets.HuggingFaceTextDataLoader.Config"
    loader = translate({"backend.config": {"validator": {"dataloader": {"_target_": target}}}}).validator.dataloader
    assert type(loader).__qualname__ == "HuggingFaceTextDataLoader.Config"
    assert loader.infinite is False


def test_what_torchtitan_itself_refuses_is_a_problem_of_that_key() -> None:
    with pytest.raises(UserError) as caught:
        translate({"backend.config": {"debug": {"batch_invariant": True}}})
    assert "Batch-invariant mode is not supported" in caught.value.problems[0].what


def test_the_rank_finds_the_same_problems_as_the_parent() -> None:
    native = {"training": {"gc_freg": 1}, "dataloader": {"num_workers": 2}, "comm": {"mode": "fast"}}
    job = make_job({"backend.config": native})
    with pytest.raises(UserError) as caught:
        TorchTitanAdapter(job).convert_config(context_for(job))
    before = [(problem.key, problem.what) for problem in TorchTitanAdapter(job).problems()]
    assert [(problem.key, problem.what) for problem in caught.value.problems] == before


def test_too_few_validation_samples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primus_hydra.data.prepare.MockSamples.__len__", lambda samples: 1)
    with pytest.raises(UserError, match=r"data\.validation_fraction"):
        translate({"validation.enable": True})


def test_last_and_validated_steps_are_logged_out_of_turn() -> None:
    settings = {"training.steps": 20, "metrics.log_every": 7, "validation.enable": True, "validation.every": 5}
    also = translate(settings).metrics.also_log
    assert [step for step in range(1, 21) if also(step)] == [5, 10, 15, 20]


def test_the_run_is_asked_and_told_through_the_configuration() -> None:
    notes = Notes(stop_at=3)
    config = translate(notes=notes)
    assert [config.stop_agreed(step) for step in (2, 3)] == [False, True]
    config.checkpoint.completed(2)
    assert notes.complete == [2]


def test_the_data_file_describes_the_real_classes() -> None:
    from primus_hydra.backends.torchtitan.schema.example import example_config
    from primus_hydra.backends.torchtitan.schema.generate import path_of, render, schema_of
    from primus_hydra.backends.torchtitan.versions import release_for

    file = path_of(release_for("0.3.0"))
    assert file.read_text(encoding="utf-8") == render(schema_of(example_config())), "run schema/generate.py again"
