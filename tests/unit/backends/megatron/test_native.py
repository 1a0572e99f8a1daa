"""Every neutral key reaches Megatron, is refused, or is read by a part that is named here."""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.config.build import schema_keys
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import Blend
from primus_hydra.errors import HostError, UserError
from tests.unit.backends.megatron.jobs import GPU, LATENT, V3, megatron_job
from tests.unit.backends.torchtitan.rank_context import MOCK, context_for

PACKAGE = Path(sys.modules[MegatronAdapter.__module__].__file__ or "").parent
NOT_FOR_THE_BACKEND = {
    "module": "names the trainer",
    "resume": "becomes RankContext.resume_from",
    "env": "is exported by the launcher",
    "task": "is what the command does",
    "backend.": "names this backend; its config lies over everything (tested below)",
    "launch.": "is the launcher's",
    "network.": "is exported by the launcher",
    "determinism.": "is exported by the launcher",
    "hooks.": "is run by the launcher",
    "run.": "is the launcher's",
    "tracker.": "is the metrics sink's",
    "patches.": "is the patch runner's",
    "tokenizer.": "is the data package's, which tells the vocabulary size",
    "platform.name": "names a choice",
    "platform.product_names": "finds the choice",
    "platform.gpus_per_node": "is the layout's",
    "platform.memory_gib": "is the plan's",
    "platform.memory_bandwidth_gb_s": "is the plan's",
    "platform.link_bandwidth_gb_s": "is the plan's",
    "platform.nic_bandwidth_gb_s": "is the plan's",
    "platform.env": "is exported by the launcher",
    "platform.limits.": "is the preflight's",
    "platform.source": "documents a file",
    "metrics.objective": "is what a sweep compares",
    "model.name": "names runs",
    "model.parameters": "is checked against the count when the job is composed",
    "model.source": "documents a file",
    "model.path": "is read when the job is composed",
    "data.text_key": "is the data package's",
    "data.split": "is the data package's",
    "data.path": "is the data package's",
    "data.validation_path": "is the data package's",
    "checkpoint.leave_free_gib": "is the runtime's, which judges the disk for the checkpointer",
}
"""Keys, or the beginnings of keys, that end before the backend begins."""
READ_BY_THE_TRAINER = {
    "metrics.log_every": "the loop",
    "checkpoint.enable": "the loop",
    "checkpoint.every": "the loop",
    "checkpoint.keep": "the checkpointer",
    "checkpoint.keep_every": "the checkpointer",
    "checkpoint.async_mode": "the checkpointer",
    "checkpoint.export_hf": "the trainer",
    "checkpoint.export_dtype": "the trainer",
    "init_from": "the trainer",
    "validation.enable": "the trainer",
    "validation.every": "the loop",
    "validation.steps": "the validator",
    "profiler.enable": "the profiler",
    "profiler.every": "the profiler",
    "profiler.warmup": "the profiler",
    "profiler.active": "the profiler",
    "profiler.memory_snapshot": "the profiler",
    "training.seed": "the trainer and the data's order",
    "training.seq_length": "the loop, whose sequences it cuts",
    "training.global_batch_size": "the layout, of which the loop cuts microbatches",
    "training.micro_batch_size": "the layout, of which the loop cuts microbatches",
    "data.kind": "the data package; what is Megatron's own is tested below",
    "data.order": "the data's order",
    "data.document_mask": "the batches",
    "data.validation_fraction": "the data package and the indexed data sets",
    "platform.peak_tflops": "the trainer, for the part of the peak",
}
"""Keys that a part of the trainer reads from the job itself (or from the layout made of it)."""
YARN = {"model.rope_scaling.rope_type": "yarn", "model.rope_scaling.original_max_position_embeddings": 64}
MIXTURE = {
    "model.architecture": "qwen3_moe",
    "model.n_routed_experts": 8,
    "model.num_experts_per_tok": 2,
    "model.moe_intermediate_size": 32,
}
COMPANIONS: dict[str, dict[str, Any]] = {
    "model.num_key_value_heads": {"model.num_attention_heads": 8},
    "model.topk_group": {**LATENT, "model.num_experts_per_tok": 2, "model.n_group": 4, "model.topk_group": 2},
    "model.n_group": {**LATENT, "model.num_experts_per_tok": 2, "model.n_group": 4, "model.topk_group": 2},
    "model.scoring_func": {**LATENT, "model.norm_topk_prob": True},
    "model.rope_scaling.factor": YARN,
    "model.rope_scaling.original_max_position_embeddings": YARN,
    "model.rope_scaling.beta_fast": YARN,
    "model.rope_scaling.beta_slow": YARN,
    "model.rope_scaling.mscale": YARN,
    "model.rope_scaling.mscale_all_dim": YARN,
    "model.rope_scaling.truncate": YARN,
    "model.interleave_moe_layer_step": MIXTURE,
    "model.rope_scaling.low_freq_factor": {"model.rope_scaling.rope_type": "llama3"},
    "model.rope_scaling.high_freq_factor": {"model.rope_scaling.rope_type": "llama3"},
    "model.rope_scaling.rope_type": {"model.rope_scaling.original_max_position_embeddings": 8192},
    "optimizer.name": {"optimizer.weight_decay": 0.0},
    "parallel.sequence_parallel": {"parallel.tp": 2},
    "parallel.pipeline_schedule": {"parallel.pp": 2},
    "parallel.sharding": {"parallel.dp_shard": 2, "parallel.sharding": "none"},
    "parallel.vpp": {
        "parallel.pp": 2,
        "parallel.vpp": 2,
        "parallel.pipeline_schedule": "Interleaved1F1B",
        "model.num_hidden_layers": 8,
    },
    "parallel.dp_replicate": {"parallel.sharding": "optimizer"},
    "parallel.etp": {**LATENT, "parallel.tp": 2},
    "parallel.ep": {**LATENT, "parallel.dp_shard": 2},
    "precision.fp8": {**GPU, "precision.compute": "bfloat16"},
    "precision.fp8_exclude": {**GPU, "precision.compute": "bfloat16", "precision.fp8": "tensorwise"},
    "precision.fp8_emulate": {**GPU, "precision.compute": "bfloat16", "precision.fp8": "tensorwise"},
    "recompute.memory_budget": {"recompute.mode": "memory_budget"},
    "compile.components": {"compile.enable": True},
    "compile.backend": {"compile.enable": True},
    "platform.vendor": {"platform.gpus_per_node": 8, "training.global_batch_size": 64, "training.micro_batch_size": 1},
    "platform.arch": {**GPU, "parallel.tp": 2},
}
VALUES: dict[str, list[Any]] = {
    "model.architecture": [
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "mixtral",
        "deepseek_v2",
        "deepseek_v3",
        "gpt_oss",
        "llama4_text",
    ],
    "model.head_dim": [32],
    "model.hidden_size": [128],
    "model.num_attention_heads": [8],
    "model.num_key_value_heads": [4],
    "model.n_routed_experts": [16],
    "model.n_group": [8],
    "model.topk_group": [1],
    "model.vocab_size": [640],
    "model.max_position_embeddings": [1024],
    "model.q_lora_rank": [24],
    "model.qk_rope_head_dim": [16],
    "parallel.pipeline_schedule": ["GPipe", "Interleaved1F1B"],
    "parallel.dp_shard": [2],
    "parallel.vpp": [4],
    "model.rope_scaling.factor": [2.0],
    "parallel.sharding": ["auto", "optimizer", "full"],
    "parallel.dp_replicate": [2],
    "lr_schedule.decay_steps": [2],
    "lr_schedule.warmup_steps": [2],
    "precision.fp8_exclude": [["lm_head", "wq"]],
    "compile.components": [["model"]],
    "compile.backend": ["eager"],
    "platform.vendor": ["nvidia", "amd"],
    "platform.arch": ["sm_100"],
}
ONLY_ONE_VALUE = {"precision.reduce"}
REFUSED_WITH: dict[str, str] = {
    "recompute.memory_budget": "recompute.mode",
    "compile.components": "compile.enable",
    "compile.backend": "compile.enable",
}
"""Keys that mean something only beside another one, which is refused."""


def companions(key: str) -> dict[str, Any]:
    """Return what a key needs beside it: the experts of a DeepSeek for a key of experts or latents."""
    if key in COMPANIONS:
        return COMPANIONS[key]
    return LATENT if f"model.{key.removeprefix('model.')}" in (*LATENT, *V3, *EXPERT_KEYS) else {}


EXPERT_KEYS = ("model.routed_scaling_factor", "model.aux_loss_alpha", "model.q_lora_rank")
DENSE_KEYS = ("model.architecture", "model.num_key_value_heads", "model.num_hidden_layers")


def translate(overrides: dict[str, Any] | None = None, **changes: Any) -> Any:
    job = megatron_job(overrides)
    return MegatronAdapter(job).convert_config(context_for(job, **changes))


def plain(value: Any) -> Any:
    """Return configuration values as comparable data; callables say nothing of a value and are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return (type(value).__qualname__, fields)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if callable(value) else value


def said(job: JobConfig) -> Any:
    """Return what a job becomes; a GPU's configuration cannot be built here, so its arguments are looked at."""
    if job.platform.is_cpu:
        return plain(MegatronAdapter(job).convert_config(context_for(job)))
    return plain([(kind.__qualname__, *arguments.items()) for kind, arguments in neutral(job).values()])


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


def keys_of_the_backend() -> list[str]:
    elsewhere = (*NOT_FOR_THE_BACKEND, *READ_BY_THE_TRAINER)
    return [
        key
        for key in schema_keys(JobConfig)
        if key not in ONLY_ONE_VALUE
        and not any(key == name or (name[-1] == "." and key.startswith(name)) for name in elsewhere)
    ]


def needed_for(key: str) -> dict[str, Any]:
    return COMPANIONS.get(key, {}) if key in DENSE_KEYS else companions(key)


@pytest.mark.parametrize("key", keys_of_the_backend())
def test_every_key_is_translated_or_refused(key: str) -> None:
    beside = needed_for(key)
    base = megatron_job(beside)
    kind, _ = schema_keys(JobConfig)[key]
    values = VALUES.get(key) or other_values(kind, leaf(base, key))
    assert values
    for value in values:
        job = megatron_job({**beside, key: value})
        problems = [*layout_of(job)[1], *MegatronAdapter(job).problems()]
        if problems:
            named = REFUSED_WITH.get(key, key)
            about = [problem for problem in problems if named in f"{problem.key} {problem.what} {problem.hint}"]
            assert about or key == "model.architecture", (value, problems)
        else:
            environment = MegatronAdapter(job).env_defaults() != MegatronAdapter(base).env_defaults()
            assert environment or said(job) != said(base), f"{key}={value} changes nothing"


@functools.cache
def names_read(package: Path) -> set[str]:
    """Return the attributes that the sources of the trainer read, its translation and checks left out."""
    files = [file for file in package.glob("*.py") if file.stem not in ("native", "limits", "owned", "adapter")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("key", READ_BY_THE_TRAINER)
def test_what_the_trainer_reads_itself_is_read(key: str) -> None:
    assert key in schema_keys(JobConfig)
    read = names_read(PACKAGE) | names_read(Path(sys.modules["primus_hydra.data"].__file__ or "").parent)
    assert key.rpartition(".")[2] in read


def test_no_key_is_claimed_that_is_not_there() -> None:
    known = list(schema_keys(JobConfig))
    claimed = [*NOT_FOR_THE_BACKEND, *READ_BY_THE_TRAINER, *COMPANIONS, *VALUES, *REFUSED_WITH]
    assert [name for name in claimed if not any(key == name or key.startswith(name) for key in known)] == []


def test_the_only_reduction_format_is_passed_on() -> None:
    assert megatron_job().precision.reduce == "float32"
    assert translate().ddp.grad_reduce_in_fp32 is True


@pytest.mark.parametrize(
    ("compute", "dtype", "half"),
    [
        ("float32", torch.float32, (False, False)),
        ("bfloat16", torch.bfloat16, (True, False)),
        ("float16", torch.float16, (False, True)),
    ],
)
def test_the_number_format_is_one_in_all_sections(compute: str, dtype: torch.dtype, half: tuple[bool, bool]) -> None:
    config = translate({"precision.compute": compute, "parallel.pp": 2})
    for section in (config.transformer, config.optimizer):
        assert section.params_dtype == dtype
        assert (section.bf16, section.fp16) == half
    assert config.transformer.pipeline_dtype == dtype


def test_data_parallel_ranks_share_the_optimizer_by_default() -> None:
    shared, alone = translate({"parallel.dp_shard": 2}), translate()
    assert (shared.optimizer.use_distributed_optimizer, shared.ddp.use_distributed_optimizer) == (True, True)
    assert (alone.optimizer.use_distributed_optimizer, alone.ddp.use_distributed_optimizer) == (False, False)


def test_a_gpu_gets_fused_kernels_and_hidden_communication() -> None:
    tree = {**GPU, "parallel.pp": 2, "parallel.vpp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"}
    job = megatron_job({**tree, "model.num_hidden_layers": 4})
    sections = neutral(job)
    transformer, ddp = sections["transformer"][1], sections["ddp"][1]
    assert transformer["transformer_impl"] == "transformer_engine"
    assert (transformer["overlap_p2p_comm"], transformer["batch_p2p_comm"]) == (True, False)
    assert (transformer["bias_activation_fusion"], transformer["apply_rope_fusion"]) == (True, True)
    assert (ddp["overlap_grad_reduce"], ddp["overlap_param_gather"]) == (True, True)


def neutral(job: JobConfig) -> dict[str, Any]:
    from primus_hydra.backends.megatron.native import neutral_sections

    return neutral_sections(job, context_for(job))


def test_fp8_is_a_recipe_of_transformer_engine() -> None:
    fields = neutral(megatron_job({**GPU, "precision.compute": "bfloat16", "precision.fp8": "tensorwise"}))
    assert (fields["transformer"][1]["fp8"], fields["transformer"][1]["fp8_recipe"]) == ("hybrid", "tensorwise")
    assert fields["optimizer"][1]["fp8_recipe"] == "tensorwise"
    assert "fp8" not in neutral(megatron_job(GPU))["transformer"][1]


def test_weight_decay_spares_no_parameter_and_other_native_settings_stay() -> None:
    from primus_hydra.backends.megatron.native import optimizer_overrides

    assert optimizer_overrides(translate().optimizer) == {}
    native = {"backend.config": {"optimizer": {"decoupled_lr": 0.1}}}
    (override,) = optimizer_overrides(translate(native).optimizer).values()
    assert override["max_lr"] == 0.1


def test_native_keys_lie_over_the_neutral_ones() -> None:
    native = {
        "transformer": {"hidden_dropout": 0.1},
        "optimizer": {"loss_scale": 512.0},
        "loop": {"profile_ranks": "1"},
    }
    config = translate({"backend.config": native})
    assert (config.transformer.hidden_dropout, config.transformer.attention_dropout) == (0.1, 0.0)
    assert config.optimizer.loss_scale == 512.0
    assert config.loop.profile_ranks == "1"


def test_indexed_data_sets_bring_a_section_of_their_own() -> None:
    data = dataclasses.replace(MOCK, blend=Blend(prefixes=["a", "b"], weights=[0.7, 0.3]), eos_id=1)
    keys = {"data.kind": "megatron", "data.path": ["0.7", "a", "0.3", "b"], "training.seed": 7}
    dataset = translate(keys, data=data).dataset
    assert (dataset.random_seed, dataset.sequence_length) == (7, 64)
    assert dataset.blend == (["a", "b"], [0.7, 0.3])
    assert translate().dataset is None


def test_weights_to_start_from_must_be_where_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="init_from"):
        translate({"init_from": str(tmp_path / "nowhere")})


def test_the_run_is_asked_through_the_configuration() -> None:
    from tests.unit.backends.torchtitan.rank_context import Notes

    config = translate(notes=Notes(stop_at=3))
    assert [config.stop_agreed(step) for step in (2, 3)] == [False, True]


def test_another_megatron_than_the_named_one_is_refused(tmp_path: Path) -> None:
    import megatron.core

    (tmp_path / "megatron" / "core").mkdir(parents=True)
    stated = Path(str(megatron.core.__file__)).with_name("package_info.py").read_text(encoding="utf-8")
    (tmp_path / "megatron" / "core" / "package_info.py").write_text(stated, encoding="utf-8")
    with pytest.raises(HostError, match="already imported from"):
        MegatronAdapter(megatron_job({"backend.path": str(tmp_path)})).prepare_backend()
