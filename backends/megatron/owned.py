"""Native keys of our loop on megatron-core that a neutral key owns: setting them twice would leave two truths.

A path below `backend.config` is a section and a field of its class. Keys that are not listed here may be set.
"""

from __future__ import annotations

from typing import Final

_SCALING: Final = "model.rope_scaling"

_TRANSFORMER: Final[dict[str, str]] = {
    "num_layers": "model.num_hidden_layers",
    "hidden_size": "model.hidden_size",
    "ffn_hidden_size": "model.intermediate_size",
    "num_attention_heads": "model.num_attention_heads",
    "num_query_groups": "model.num_key_value_heads",
    "kv_channels": "model.head_dim",
    "normalization": "model.architecture",
    "layernorm_epsilon": "model.rms_norm_eps",
    "gated_linear_unit": "model.architecture",
    "activation_func": "model.architecture",
    "qk_layernorm": "model.architecture",
    "multi_latent_attention": "model.architecture",
    "add_bias_linear": "model.attention_bias",
    "add_qkv_bias": "model.architecture",
    "init_method_std": "model.initializer_range",
    "q_lora_rank": "model.q_lora_rank",
    "kv_lora_rank": "model.kv_lora_rank",
    "qk_head_dim": "model.qk_nope_head_dim",
    "qk_pos_emb_head_dim": "model.qk_rope_head_dim",
    "v_head_dim": "model.v_head_dim",
    "rotary_base": "model.rope_theta",
    "rope_type": f"{_SCALING}.rope_type",
    "rotary_scaling_factor": f"{_SCALING}.factor",
    "original_max_position_embeddings": f"{_SCALING}.original_max_position_embeddings",
    "beta_fast": f"{_SCALING}.beta_fast",
    "beta_slow": f"{_SCALING}.beta_slow",
    "mscale": f"{_SCALING}.mscale",
    "mscale_all_dim": f"{_SCALING}.mscale_all_dim",
    "yarn_rotary_scaling_factor": f"{_SCALING}.factor",
    "yarn_original_max_position_embeddings": f"{_SCALING}.original_max_position_embeddings",
    "yarn_beta_fast": f"{_SCALING}.beta_fast",
    "yarn_beta_slow": f"{_SCALING}.beta_slow",
    "yarn_mscale": f"{_SCALING}.mscale",
    "yarn_mscale_all_dim": f"{_SCALING}.mscale_all_dim",
    "yarn_correction_range_round_to_int": f"{_SCALING}.truncate",
    "num_moe_experts": "model.n_routed_experts",
    "moe_ffn_hidden_size": "model.moe_intermediate_size",
    "moe_shared_expert_intermediate_size": "model.n_shared_experts",
    "moe_layer_freq": "model.first_k_dense_replace",
    "moe_router_topk": "model.num_experts_per_tok",
    "moe_router_score_function": "model.scoring_func",
    "moe_router_pre_softmax": "model.norm_topk_prob",
    "moe_router_topk_scaling_factor": "model.routed_scaling_factor",
    "moe_router_num_groups": "model.n_group",
    "moe_router_group_topk": "model.topk_group",
    "moe_router_topk_limited_devices": "model.topk_group",
    "moe_router_load_balancing_type": "model.aux_loss_alpha",
    "moe_aux_loss_coeff": "model.aux_loss_alpha",
    "moe_router_enable_expert_bias": "model.architecture",
    "tensor_model_parallel_size": "parallel.tp",
    "pipeline_model_parallel_size": "parallel.pp",
    "virtual_pipeline_model_parallel_size": "parallel.vpp",
    "context_parallel_size": "parallel.cp",
    "expert_model_parallel_size": "parallel.ep",
    "expert_tensor_parallel_size": "parallel.etp",
    "sequence_parallel": "parallel.sequence_parallel",
    "bf16": "precision.compute",
    "fp16": "precision.compute",
    "params_dtype": "precision.compute",
    "pipeline_dtype": "precision.compute",
    "fp8": "precision.fp8",
    "fp8_recipe": "precision.fp8",
    "recompute_granularity": "recompute.mode",
    "deterministic_mode": "training.deterministic",
    "transformer_impl": "backend.config.model.layer_implementation",
}

_OPTIMIZER: Final[dict[str, str]] = {
    "optimizer": "optimizer.name",
    "decoupled_weight_decay": "optimizer.name",
    "lr": "optimizer.lr",
    "min_lr": "lr_schedule.min_lr_ratio",
    "adam_beta1": "optimizer.beta1",
    "adam_beta2": "optimizer.beta2",
    "adam_eps": "optimizer.eps",
    "weight_decay": "optimizer.weight_decay",
    "apply_wd_to_qk_layernorm": "optimizer.weight_decay",
    "clip_grad": "training.max_grad_norm",
    "bf16": "precision.compute",
    "fp16": "precision.compute",
    "params_dtype": "precision.compute",
    "fp8_recipe": "precision.fp8",
    "use_distributed_optimizer": "parallel.sharding",
}

_DDP: Final[dict[str, str]] = {
    "grad_reduce_in_fp32": "precision.reduce",
    "use_distributed_optimizer": "parallel.sharding",
    "num_distributed_optimizer_instances": "parallel.dp_replicate",
    "use_megatron_fsdp": "parallel.sharding",
    "use_custom_fsdp": "parallel.sharding",
    "data_parallel_sharding_strategy": "parallel.sharding",
    "outer_dp_sharding_strategy": "parallel.sharding",
}

_MODEL: Final[dict[str, str]] = {
    "vocab_size": "model.vocab_size",
    "max_sequence_length": "model.max_position_embeddings",
    "position_embedding_type": "model.rope_scaling.rope_type",
    "rotary_base": "model.rope_theta",
    "rope_scaling": "model.rope_scaling.rope_type",
    "rope_scaling_factor": "model.rope_scaling.factor",
    "seq_len_interpolation_factor": "model.rope_scaling.factor",
    "share_embeddings_and_output_weights": "model.tie_word_embeddings",
}

_SCHEDULE: Final[dict[str, str]] = {
    "warmup_steps": "lr_schedule.warmup_steps",
    "decay": "lr_schedule.decay",
    "decay_steps": "lr_schedule.decay_steps",
    "min_lr_ratio": "lr_schedule.min_lr_ratio",
    "steps": "training.steps",
    "start_weight_decay": "optimizer.weight_decay",
}

_DATASET: Final[dict[str, str]] = {
    "random_seed": "training.seed",
    "sequence_length": "training.seq_length",
    "blend": "data.path",
    "blend_per_split": "data.path",
    "split": "data.validation_fraction",
    "tokenizer": "tokenizer.path",
    "reset_position_ids": "data.document_mask",
    "reset_attention_mask": "data.document_mask",
    "eod_mask_loss": "data.document_mask",
    "create_attention_mask": "data.document_mask",
}

_SECTIONS: Final = {
    "transformer": _TRANSFORMER,
    "optimizer": _OPTIMIZER,
    "ddp": _DDP,
    "model": _MODEL,
    "schedule": _SCHEDULE,
    "dataset": _DATASET,
}

OWNED: Final[dict[str, str]] = {
    f"{section}.{key}": owner for section, owners in _SECTIONS.items() for key, owner in owners.items()
}
"""Native key (a dotted path below `backend.config`) to the neutral key that owns it."""
