from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.megatron.limits import (
    job_problems,
    layer_implementation,
    packs_documents,
    shards_optimizer,
)
from primus_hydra.config.layout import layout_of
from primus_hydra.errors import Problem
from tests.unit.backends.megatron.jobs import GPU, LATENT, V3, megatron_job

DEEP = {"model.num_hidden_layers": 8, "training.micro_batch_size": 1, "training.global_batch_size": 8}
CHUNKS = {**DEEP, "parallel.pp": 2, "parallel.vpp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"}
LLAMA3 = {
    "model.rope_scaling.rope_type": "llama3",
    "model.rope_scaling.factor": 8.0,
    "model.rope_scaling.original_max_position_embeddings": 8192,
}
YARN = {**LLAMA3, "model.rope_scaling.rope_type": "yarn"}
FP8 = {**GPU, "precision.compute": "bfloat16", "precision.fp8": "tensorwise"}
GROUPS = {"model.n_group": 4, "model.topk_group": 2}


def problems_of(overrides: dict[str, Any]) -> list[Problem]:
    job = megatron_job(overrides)
    return [*layout_of(job)[1], *MegatronAdapter(job).problems()]


def keys_of(overrides: dict[str, Any]) -> list[str | None]:
    return [problem.key for problem in problems_of(overrides)]


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"parallel.tp": 2},
        {"parallel.tp": 2, "parallel.sequence_parallel": False},
        {"parallel.dp_shard": 2, "parallel.sharding": "optimizer"},
        {"parallel.dp_shard": 2, "parallel.sharding": "none"},
        {"parallel.dp_replicate": 2, "parallel.sharding": "optimizer"},
        {"parallel.pp": 2},
        {"parallel.pp": 2, "model.tie_word_embeddings": True},
        CHUNKS,
        {**CHUNKS, "parallel.pipeline_schedule": "interleaved1f1b"},
        {"precision.compute": "float16"},
        {"recompute.mode": "full"},
        {"recompute.mode": "selective"},
        {"checkpoint.async_mode": "async"},
        {"checkpoint.keep_every": 2},
        {"model.architecture": "qwen3", "model.head_dim": 32},
        LLAMA3,
        YARN,
        {"model.rope_scaling.rope_type": "linear", "model.rope_scaling.factor": 2.0},
        LATENT,
        {**LATENT, "parallel.dp_shard": 2, "parallel.ep": 2},
        {**LATENT, "parallel.tp": 2, "parallel.ep": 2},
        {**LATENT, "model.aux_loss_alpha": 0.01, "parallel.tp": 2},
        {**LATENT, **GROUPS, "model.num_experts_per_tok": 2},
        V3,
        {**V3, **GROUPS, "model.num_experts_per_tok": 4},
        GPU,
        {**GPU, "parallel.cp": 2, "data.document_mask": False},
        {**FP8, "parallel.tp": 2},
    ],
)
def test_a_job_that_megatron_can_train_has_no_problems(overrides: dict[str, Any]) -> None:
    assert problems_of(overrides) == []


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"module": "dpo"}, "module"),
        ({"parallel.sharding": "full"}, "parallel.sharding"),
        ({"parallel.dp_shard": 2, "parallel.dp_replicate": 2, "training.micro_batch_size": 1}, "parallel.dp_replicate"),
        ({"parallel.reshard_after_forward": "always"}, "parallel.reshard_after_forward"),
        ({"parallel.cp": 2}, "parallel.cp"),
        ({**GPU, "parallel.cp": 2}, "data.document_mask"),
        ({"parallel.vpp": 2}, "parallel.vpp"),
        ({"parallel.pp": 2, "parallel.pipeline_schedule": "GPipe"}, "parallel.pipeline_schedule"),
        ({"parallel.pp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"}, "parallel.pipeline_schedule"),
        ({**CHUNKS, "parallel.pipeline_schedule": "1F1B"}, "parallel.pipeline_schedule"),
        ({**CHUNKS, "model.num_hidden_layers": 6}, "parallel.vpp"),
        ({"parallel.pp": 2, "model.num_hidden_layers": 3}, "parallel.pp"),
        ({**CHUNKS, "training.global_batch_size": 7}, "training.global_batch_size"),
        ({"parallel.tp": 2, "model.intermediate_size": 127}, "parallel.tp"),
        ({"parallel.tp": 2, "model.vocab_size": 5001}, "parallel.tp"),
        ({"parallel.tp": 2, "tokenizer.vocab_size": 4097}, "parallel.tp"),
        ({**LATENT, "model.kv_lora_rank": 17, "parallel.tp": 2}, "parallel.tp"),
        ({"parallel.tp": 2, "training.seq_length": 63}, "training.seq_length"),
        ({"parallel.etp": 2}, "parallel.etp"),
        ({**LATENT, "parallel.ep": 2}, "parallel.ep"),
        ({**LATENT, "parallel.tp": 2, "parallel.etp": 2, "model.moe_intermediate_size": 33}, "parallel.etp"),
        ({**LATENT, "parallel.tp": 2, "parallel.sequence_parallel": False}, "parallel.sequence_parallel"),
        ({"optimizer.name": "adam"}, "optimizer.weight_decay"),
        ({"lr_schedule.warmup_steps": 2, "lr_schedule.decay_steps": 3}, "lr_schedule.decay_steps"),
        ({"recompute.mode": "memory_budget"}, "recompute.mode"),
        ({"compile.enable": True}, "compile.enable"),
        ({"precision.params": "bfloat16"}, "precision.params"),
        ({"precision.fp8": "tensorwise"}, "precision.fp8"),
        ({**FP8, "precision.fp8": "rowwise"}, "precision.fp8"),
        ({**FP8, "precision.fp8_exclude": []}, "precision.fp8_exclude"),
        ({**FP8, "precision.fp8_emulate": True}, "precision.fp8_emulate"),
        ({"checkpoint.async_mode": "async_pinned"}, "checkpoint.async_mode"),
        ({"profiler.enable": True, "profiler.every": 3}, "profiler.every"),
        ({"profiler.memory_snapshot": True}, "profiler.memory_snapshot"),
        ({"training.seq_length": 1024}, "training.seq_length"),
        ({"model.attention_bias": True}, "model.attention_bias"),
        ({"model.n_routed_experts": 8}, "model.n_routed_experts"),
        ({**LLAMA3, "model.rope_scaling.low_freq_factor": 2.0}, "model.rope_scaling.low_freq_factor"),
        ({**LATENT, **LLAMA3}, "model.rope_scaling.rope_type"),
        ({**LATENT, "model.n_routed_experts": None}, "model.n_shared_experts"),
        ({**LATENT, "model.scoring_func": "sigmoid"}, "model.norm_topk_prob"),
        ({**V3, "model.num_experts_per_tok": 1}, "model.norm_topk_prob"),
        ({**LATENT, "model.norm_topk_prob": True, "model.num_experts_per_tok": 1}, "model.norm_topk_prob"),
        ({**V3, "model.scoring_func": "softmax"}, "model.scoring_func"),
        ({**LATENT, **GROUPS, "model.num_experts_per_tok": 4}, "model.topk_group"),
        ({**V3, **GROUPS}, "model.topk_group"),
        ({"backend.config": {"transformer": {"num_layers": 3}}}, "backend.config.transformer.num_layers"),
        (
            {"backend.config": {"transformer": {"moe_grouped_gemm": True}}},
            "backend.config.transformer.moe_grouped_gemm",
        ),
        (
            {"backend.config": {"transformer": {"calculate_per_token_loss": False}}},
            "backend.config.transformer.calculate_per_token_loss",
        ),
        ({"backend.config": {"ddp": {"average_in_collective": True}}}, "backend.config.ddp.average_in_collective"),
        ({"backend.config": {"schedule": {"end_weight_decay": 0.2}}}, "backend.config.schedule.end_weight_decay"),
        ({"backend.config": {"batch": {"rampup": [3, 1, 8]}}}, "backend.config.batch.rampup"),
        ({"backend.config": {"batch": {"rampup": [2, 2]}}}, "backend.config.batch.rampup"),
        ({"backend.config": {"loop": {"garbage_collect_every": 0}}}, "backend.config.loop.garbage_collect_every"),
        ({"backend.config": {"loop": {"profile_ranks": "abc"}}}, "backend.config.loop.profile_ranks"),
        ({"backend.config": {"parallel": {"order": "tp-pp"}}}, "backend.config.parallel.order"),
        (
            {"backend.config": {"parallel": {"distributed_timeout_minutes": 0}}},
            "backend.config.parallel.distributed_timeout_minutes",
        ),
        (
            {"backend.config": {"checkpoint": {"create_seed": True}}, "checkpoint.enable": False},
            "backend.config.checkpoint.create_seed",
        ),
        ({**LATENT, **GPU, "model.aux_loss_alpha": 0.01, "training.micro_batch_size": 2}, "training.micro_batch_size"),
        ({"init_from": "/nowhere/step-1"}, "init_from"),
    ],
)
def test_what_megatron_cannot_do_is_said_before_the_launch(overrides: dict[str, Any], key: str) -> None:
    assert key in keys_of(overrides)


def test_all_problems_are_told_at_once() -> None:
    wrong = {"parallel.sharding": "full", "compile.enable": True, "model.attention_bias": True, "parallel.cp": 2}
    assert {"parallel.sharding", "compile.enable", "model.attention_bias", "parallel.cp"} <= set(keys_of(wrong))


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ({"parallel.tp": 2, "model.intermediate_size": 127}, "parallel.tp can be 1 here"),
        ({"parallel.tp": 4, "model.num_key_value_heads": 4, "model.intermediate_size": 126}, "can be 1 or 2 here"),
        ({"parallel.tp": 2, "training.seq_length": 63}, "use 62"),
        ({**CHUNKS, "training.global_batch_size": 7}, "use 6, a multiple of 2"),
        ({"parallel.pp": 2, "model.num_hidden_layers": 3}, "num_layers_in_last_pipeline_stage"),
        ({**CHUNKS, "model.num_hidden_layers": 6}, "pp*vpp can be 2 or 6 with pp=2"),
        ({**LATENT, "parallel.ep": 8, "parallel.dp_shard": 4, "training.micro_batch_size": 1}, "ep can be 1, 2, 4"),
        ({"parallel.pp": 2, "parallel.pipeline_schedule": "1F2B"}, "did you mean 1F1B?"),
    ],
)
def test_a_size_that_does_not_fit_comes_with_those_that_do(overrides: dict[str, Any], hint: str) -> None:
    assert any(hint in (problem.hint or "") for problem in problems_of(overrides)), problems_of(overrides)


def test_stages_of_different_sizes_are_left_to_megatron() -> None:
    uneven = {"backend.config": {"transformer": {"num_layers_in_last_pipeline_stage": 1}}}
    assert keys_of({"parallel.pp": 2, "model.num_hidden_layers": 3, **uneven}) == []


def test_layers_follow_the_platform_unless_native_keys_choose_them() -> None:
    def native(name: str) -> dict[str, Any]:
        return {"backend.config": {"model": {"layer_implementation": name}}}

    assert layer_implementation(megatron_job()) == "local"
    assert layer_implementation(megatron_job(GPU)) == "transformer_engine"
    assert layer_implementation(megatron_job({**GPU, **native("local")})) == "local"
    assert layer_implementation(megatron_job(native("transformer_engine"))) == "transformer_engine"


def test_documents_are_packed_only_for_transformer_engine() -> None:
    assert packs_documents(megatron_job(GPU))
    assert not packs_documents(megatron_job())
    assert not packs_documents(megatron_job({**GPU, "data.document_mask": False}))


@pytest.mark.parametrize(
    ("sharding", "ranks", "expected"),
    [("auto", 1, False), ("auto", 2, True), ("optimizer", 1, False), ("optimizer", 2, True), ("none", 2, False)],
)
def test_the_optimizer_is_shared_where_there_is_someone_to_share_with(
    sharding: str, ranks: int, expected: bool
) -> None:
    job = megatron_job({"parallel.sharding": sharding, "parallel.dp_shard": ranks})
    layout, _ = layout_of(job)
    assert layout is not None
    assert shards_optimizer(job, layout) is expected


def test_a_checkpoint_to_start_from_is_looked_at(tmp_path: Path) -> None:
    start = {"init_from": str(tmp_path)}
    assert keys_of({"init_from": str(tmp_path / "elsewhere")}) == ["init_from"]
    assert keys_of(start) == ["init_from"]
    (tmp_path / ".metadata").touch()
    assert keys_of(start) == ["init_from"], "the metadata of torch alone is another backend's checkpoint"
    (tmp_path / "metadata.json").touch()
    assert keys_of(start) == []


def test_hugging_face_weights_without_their_prefix_are_told_how_to_be_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    (problem,) = job_problems(megatron_job({"init_from": str(tmp_path)}))
    assert problem.hint == f"write init_from=hf:{tmp_path}"
