"""Keys of torchtitan up to 0.2 (its JobConfig, in TOML) and what became of them in 0.3.

Sources: torchtitan 0.2.2 `config/job_config.py` and torchtitan 0.3.0 `config/configs.py` with the `Config` classes of
its components. Sections that kept their names and fields are not listed.
"""

from __future__ import annotations

from typing import Any, Final

RENAMED: Final[dict[str, str]] = {
    "job.dump_folder": "dump_folder",
    "job.print_config": "debug.print_config",
    "job.save_config_file": "debug.save_config_file",
    "model.hf_assets_path": "hf_assets_path",
    "model.tokenizer_path": "hf_assets_path",
    "profiling.enable_profiling": "profiler.enable_profiling",
    "profiling.save_traces_folder": "profiler.save_traces_folder",
    "profiling.profile_freq": "profiler.profile_freq",
    "profiling.profiler_active": "profiler.profiler_active",
    "profiling.profiler_warmup": "profiler.profiler_warmup",
    "profiling.enable_memory_snapshot": "profiler.enable_memory_snapshot",
    "profiling.save_memory_snapshot_folder": "profiler.save_memory_snapshot_folder",
    "validation.enable": "validator.enable",
    "validation.freq": "validator.freq",
    "validation.steps": "validator.steps",
    "parallelism.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns": (
        "activation_checkpoint.force_recompute_mm_shapes_by_fqns"
    ),
    "checkpoint.enable_checkpoint": "checkpoint.enable",
    "checkpoint.last_save_model_weights_only": "checkpoint.last_save_model_only",
    "training.seed": "debug.seed",
    "training.deterministic": "debug.deterministic",
    "training.compile": "compile.enable",
    "experimental.custom_import": "override.imports",
}
"""Former name to the name of 0.3."""

OWNED: Final[dict[str, tuple[str, Any]]] = {
    "model.name": ("model.architecture", None),
    "model.flavor": ("model.name", None),
    "model.converters": ("precision.fp8", []),
    "quantize.linear.float8.recipe_name": ("precision.fp8", None),
    "quantize.linear.float8.filter_fqns": ("precision.fp8_exclude", []),
    "quantize.linear.float8.emulate": ("precision.fp8_emulate", False),
    "model.n_layers": ("model.num_hidden_layers", None),
    "optimizer.name": ("optimizer.name", "AdamW"),
    "optimizer.lr": ("optimizer.lr", 8e-4),
    "optimizer.beta1": ("optimizer.beta1", 0.9),
    "optimizer.beta2": ("optimizer.beta2", 0.95),
    "optimizer.eps": ("optimizer.eps", 1e-8),
    "optimizer.weight_decay": ("optimizer.weight_decay", 0.1),
    "activation_checkpoint.mode": ("recompute.mode", "selective"),
    "activation_checkpoint.memory_budget": ("recompute.memory_budget", 0.5),
    "training.dataset": ("data.kind", "c4_test"),
    "training.dataset_path": ("data.path", None),
    "training.mock_data": ("data.kind", False),
    "dataloader.dataset": ("data.kind", "c4_test"),
    "dataloader.dataset_path": ("data.path", None),
}
"""Names that have no field of their own any more: the neutral key that says it, and the default they had."""

REMOVED: Final[dict[str, str]] = {
    "job.description": "a comment; the run's name says what it is",
    "job.config_file": "the configuration is here",
    "job.custom_config_module": "torchtitan 0.3 takes no more configuration modules: override.imports changes parts",
    "optimizer.early_step_in_backward": "torchtitan 0.3 has removed it",
    "parallelism.disable_loss_parallel": "torchtitan 0.3 has removed it: the loss is parallel where the logits are",
    "parallelism.context_parallel_rotate_method": "torchtitan 0.3 has removed it",
    "parallelism.expert_tensor_parallel_degree": "torchtitan 0.3 has no tensor parallel ranks inside an expert",
    "parallelism.expert_parallel_comm_backend": "torchtitan 0.3 takes it in code, when the model is built",
    "parallelism.pipeline_parallel_expert_parallel_overlap": "torchtitan 0.3 has removed it",
    "activation_checkpoint.selective_ac_option": "torchtitan 0.3 has one selective mode, by operators",
    "activation_checkpoint.early_stop": "torchtitan 0.3 has removed it",
    "validation.dataset": "validation documents are held out of the data: data.validation_fraction",
    "validation.dataset_path": "validation documents are held out of the data: data.validation_fraction",
    "validation.local_batch_size": "validation takes the batch of the training",
    "validation.seq_len": "validation takes the sequence length of the training",
    "checkpoint.enable_ft_dataloader_checkpoints": "it belongs to torchft, which no module here uses",
    "checkpoint.export_dtype_on_save": "it is checkpoint.export_dtype",
    "model.print_after_conversion": "torchtitan 0.3 has removed it",
}
"""Names that nothing takes any more, with the reason."""

REMOVED_SECTIONS: Final[dict[str, str]] = {
    "fault_tolerance": "torchtitan 0.3 keeps it in an experiment; ranks are restarted by launch.max_restarts",
    "memory_estimation": "torchtitan 0.3 has removed it",
    "experimental": "torchtitan 0.3 has removed it: override.imports changes parts",
    "quantize": "only fp8 of linear layers is taken here: precision.fp8",
    "float8": "only fp8 of linear layers is taken here: precision.fp8",
    "mx": "only fp8 of linear layers is taken here: precision.fp8",
}
"""Sections whose other keys nothing takes any more, with the reason."""
