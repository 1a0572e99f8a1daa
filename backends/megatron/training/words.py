"""How upstream's arguments are called where a field of a class has another name; and which of them are taken.

Most fields have an argument of their own name. `OWNED` follows from what neutral keys own in `backend=megatron`, with
what is said there by plain code added. `REFUSED` would be without effect here, or would take the run out of hands that
keep its promises. Imports neither torch nor Megatron.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from primus_hydra.backends.megatron.owned import OWNED as CORE_OWNED

RENAMED: Final[dict[str, str]] = {
    "transformer.num_moe_experts": "num_experts",
    "transformer.virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "transformer.num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "transformer.num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "transformer.bias_activation_fusion": "bias_swiglu_fusion",
    "ddp.grad_reduce_in_fp32": "accumulate_allreduce_grads_in_fp32",
    "model.vocab_size": "padded_vocab_size",
    "model.max_sequence_length": "max_position_embeddings",
    "model.rope_scaling": "use_rope_scaling",
    "model.layer_implementation": "transformer_impl",
}
"""Section and field to the argument of the same meaning."""
INVERTED: Final[dict[str, str]] = {
    "transformer.persist_layer_norm": "no_persist_layer_norm",
    "model.share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
}
"""Section and field to the argument that means the opposite."""
DERIVED: Final = frozenset(
    {
        "transformer.gated_linear_unit",
        "transformer.activation_func",
        "transformer.params_dtype",
        "transformer.pipeline_dtype",
        "transformer.batch_p2p_comm",
        "transformer.deallocate_pipeline_outputs",
        "transformer.transformer_impl",
        "optimizer.params_dtype",
    }
)
"""Fields that upstream itself fills from other arguments."""

_LR: Final = "lr_schedule.*"
_VOCABULARY: Final = "model.vocab_size"
_STEPS: Final = "training.steps"
_OWN: Final[dict[str, str]] = {
    "micro_batch_size": "training.micro_batch_size",
    "global_batch_size": "training.global_batch_size",
    "eval_micro_batch_size": "training.micro_batch_size",
    "eval_global_batch_size": "training.global_batch_size",
    "seq_length": "training.seq_length",
    "encoder_seq_length": "training.seq_length",
    "decoder_seq_length": "training.seq_length",
    "train_iters": _STEPS,
    "train_samples": _STEPS,
    "exit_interval": _STEPS,
    "seed": "training.seed",
    "swiglu": "model.architecture",
    "squared_relu": "model.architecture",
    "quick_geglu": "model.architecture",
    "openai_gelu": "model.architecture",
    "group_query_attention": "model.num_key_value_heads",
    "encoder_num_layers": "model.num_hidden_layers",
    "decoder_num_layers": "model.num_hidden_layers",
    "add_position_embedding": "model.architecture",
    "use_rotary_position_embeddings": "model.architecture",
    "rotary_percent": "model.architecture",
    "rotary_seq_len_interpolation_factor": "model.rope_scaling.factor",
    "vocab_size": _VOCABULARY,
    "pad_vocab_size": _VOCABULARY,
    "make_vocab_size_divisible_by": _VOCABULARY,
    "num_layers_per_virtual_pipeline_stage": "parallel.vpp",
    "recompute_activations": "recompute.mode",
    "use_torch_fsdp2": "parallel.sharding",
    "use_layer_wise_param_layout": "parallel.sharding",
    "grad_reduce_in_bf16": "precision.reduce",
    "lr_decay_style": "lr_schedule.decay",
    "lr_decay_iters": "lr_schedule.decay_steps",
    "lr_warmup_iters": "lr_schedule.warmup_steps",
    "lr_decay_samples": _LR,
    "lr_warmup_samples": _LR,
    "lr_warmup_fraction": _LR,
    "lr_warmup_init": _LR,
    "lr_wsd_decay_style": _LR,
    "lr_wsd_decay_iters": _LR,
    "lr_wsd_decay_samples": _LR,
    "decoupled_lr": _LR,
    "decoupled_min_lr": _LR,
    "override_opt_param_scheduler": _LR,
    "use_checkpoint_opt_param_scheduler": _LR,
    "start_weight_decay": "optimizer.weight_decay",
    "end_weight_decay": "optimizer.weight_decay",
    "weight_decay_incr_style": "optimizer.weight_decay",
    "no_weight_decay_cond_type": "optimizer.weight_decay",
    "eval_iters": "validation.steps",
    "eval_interval": "validation.every",
    "full_validation": "validation.steps",
    "save": "run.dir",
    "save_interval": "checkpoint.every",
    "save_retain_interval": "checkpoint.keep_every",
    "load": "resume and init_from",
    "ckpt_step": "resume",
    "override_ckpt_iteration": "resume",
    "finetune": "init_from",
    "pretrained_checkpoint": "init_from",
    "async_save": "checkpoint.async_mode",
    "data_path": "data.path",
    "train_data_path": "data.path",
    "valid_data_path": "data.validation_path",
    "test_data_path": "data.path",
    "data_args_path": "data.path",
    "per_split_data_args_path": "data.path",
    "mock_data": "data.kind",
    "split": "data.validation_fraction",
    "reset_position_ids": "data.document_mask",
    "reset_attention_mask": "data.document_mask",
    "eod_mask_loss": "data.document_mask",
    "create_attention_mask_in_dataloader": "data.document_mask",
    "dataloader_inter_document_masking": "data.document_mask",
    "dataloader_type": "data.order",
    "data_sharding": "data.order",
    "log_interval": "metrics.log_every",
    "tensorboard_dir": "tracker.tensorboard.enable",
    "wandb_project": "tracker.wandb.project",
    "wandb_exp_name": "run.name",
    "wandb_entity": "tracker.wandb.entity",
    "wandb_save_dir": "run.dir",
    "profile": "profiler.enable",
    "profile_step_start": "profiler.every",
    "profile_step_end": "profiler.active",
    "use_pytorch_profiler": "profiler.enable",
    "record_memory_history": "profiler.memory_snapshot",
    "memory_snapshot_path": "profiler.memory_snapshot",
    "distributed_backend": "platform",
    "local_rank": "launch.*",
}
"""Arguments that plain code sets, to the neutral key that says it."""

_ELSEWHERE: Final = "other programs of Megatron read it, the pretraining of a GPT does not"
_LAUNCHER: Final = "the launcher ends, restarts and resumes a run; upstream's own way would end the rank in the middle"
_MODEL: Final = "it stands for a model that no neutral key describes"
_DATA: Final = "our data set does not read it"
_CONVERT: Final = "upstream ends the process after it"
_WRITING: Final = "threads of the rank write its checkpoints"
_RAMP: Final = "backend=megatron has a ramp, backend.config.batch.rampup"
REFUSED: Final[dict[str, str]] = {
    "async_strategy": _WRITING,
    "use_persistent_ckpt_worker": _WRITING,
    "async_ckpt_cpu_priority": _WRITING,
    "async_ckpt_io_priority": _WRITING,
    "async_ckpt_use_cpu_shm": _WRITING,
    "dist_ckpt_workers": _WRITING,
    "exit_signal_handler": _LAUNCHER,
    "exit_signal": _LAUNCHER,
    "exit_signal_handler_for_dataloader": _LAUNCHER,
    "exit_signal_handler_for_training": _LAUNCHER,
    "exit_duration_in_mins": _LAUNCHER,
    "exit_on_missing_checkpoint": _LAUNCHER,
    "phase_transition_iterations": _LAUNCHER,
    "non_persistent_save_interval": _LAUNCHER,
    "non_persistent_ckpt_type": _LAUNCHER,
    "ckpt_convert_format": _CONVERT,
    "ckpt_convert_save": _CONVERT,
    "ckpt_convert_update_legacy_dist_opt_format": _CONVERT,
    "checkpoint_activations": _CONVERT,
    "use_checkpoint_args": "the configuration decides, not what an earlier run was started with",
    "use_mp_args_from_checkpoint_args": "the configuration decides, not what an earlier run was started with",
    "use_tokenizer_model_from_checkpoint_args": "the configuration decides, not what an earlier run was started with",
    "yaml_cfg": "the configuration is here",
    "ckpt_format": "a run keeps one format, torch_dist, which every layout can read",
    "auto_detect_ckpt_format": "a run keeps one format, torch_dist, which every layout can read",
    "init_model_with_meta_device": "it belongs to Megatron-FSDP, which this backend does not build",
    "spec": _MODEL,
    "hybrid_layer_pattern": _MODEL,
    "hybrid_override_pattern": _MODEL,
    "is_hybrid_model": _MODEL,
    "mtp_num_layers": _MODEL,
    "mtp_hybrid_override_pattern": _MODEL,
    "experimental_attention_variant": _MODEL,
    "mrope_section": _MODEL,
    "freeze_all_layers": _MODEL,
    "moe_use_upcycling": _MODEL,
    "multiple_validation_sets": _DATA,
    "validation_set_names": _DATA,
    "start_eval_at_iter": _DATA,
    "skip_train": _DATA,
    "per_dataset_sequences_path": _DATA,
    "data_cache_path": _DATA,
    "hybrid_context_parallel": _DATA,
    "lazy_mpu_init": "it leaves the start of the ranks to others",
    "fake_process_group": "nothing would be trained",
    "rampup_batch_size": f"this Megatron takes it and ignores it; {_RAMP}",
    "step_batch_size_schedule": f"training.global_batch_size is constant here; {_RAMP}",
}
"""Argument to the reason why it cannot be set."""
REFUSED_GROUPS: Final[dict[str, str]] = {
    "rl": _ELSEWHERE,
    "biencoder": _ELSEWHERE,
    "vision": _ELSEWHERE,
    "inference": _ELSEWHERE,
    "sft": _ELSEWHERE,
    "Logits Distillation": _ELSEWHERE,
    "tokenizer": "tokens are prepared before the ranks start",
    "heterogeneous architecture": _MODEL,
    "autoresume": _LAUNCHER,
    "In-process restart": _LAUNCHER,
    "ft_package": _LAUNCHER,
    "one logger": "the run's metrics and trackers tell what it would tell",
}
"""Group of upstream's parser to the reason why none of its arguments can be set."""


def argument_of(path: str) -> str:
    """Return the argument that a section's field (`transformer.num_layers`) may have; there need not be one."""
    return RENAMED.get(path) or INVERTED.get(path) or path.partition(".")[2]


def owned_arguments(known: Mapping[str, object]) -> dict[str, str]:
    """Return which of the `known` arguments a neutral key owns, with the key."""
    from_core = {argument_of(path): owner for path, owner in CORE_OWNED.items() if "backend.config" not in owner}
    return {name: owner for name, owner in {**from_core, **_OWN}.items() if name in known}
