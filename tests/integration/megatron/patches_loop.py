"""A training loop of a few lines on megatron-core, for the tests of the patches: fixed data, one small model.

It needs none of our trainer, so that a patch is shown to mend Megatron, and not our use of it.
"""

from __future__ import annotations

import functools
import queue
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCABULARY, LENGTH, ROWS, MICROBATCHES = 64, 16, 2, 2


@dataclass(kw_only=True)
class Setup:
    """What differs between the trainings of the tests; `transformer` holds fields of TransformerConfig."""

    tp: int = 1
    pp: int = 1
    vpp: int | None = None
    ep: int = 1
    dtype: str = "float32"
    distributed_optimizer: bool = False
    overlap: bool = False
    sequence_parallel: bool = False
    per_token_loss: bool = False
    transformer: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Training:
    """The objects of one training."""

    chunks: list[Any]
    optimizer: Any
    config: Any
    steps_done: int = 0


def build(setup: Setup) -> Training:
    """Build model and optimizer; torch.distributed must be initialised."""
    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.distributed.finalize_model_grads import finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    parallel_state.initialize_model_parallel(
        setup.tp,
        setup.pp,
        virtual_pipeline_model_parallel_size=setup.vpp,
        expert_model_parallel_size=setup.ep,
    )
    torch.manual_seed(7)
    tensor_parallel.model_parallel_cuda_manual_seed(7)
    config = _transformer(setup)
    overlap_param = setup.overlap and setup.distributed_optimizer
    ddp = DistributedDataParallelConfig(
        use_distributed_optimizer=setup.distributed_optimizer,
        overlap_grad_reduce=setup.overlap,
        overlap_param_gather=overlap_param,
        grad_reduce_in_fp32=setup.dtype == "bfloat16",
    )
    models = _models(setup, config)
    if setup.dtype != "float32":
        models = [Float16Module(config, model) for model in models]
    chunks = [DistributedDataParallel(config, ddp, model) for model in models]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-2,
            weight_decay=0.1,
            clip_grad=1.0,
            bf16=config.bf16,
            fp16=config.fp16,
            initial_loss_scale=256.0,
            params_dtype=config.params_dtype,
            use_distributed_optimizer=setup.distributed_optimizer,
            overlap_param_gather=overlap_param,
        ),
        chunks,
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if setup.overlap:
        config.no_sync_func = [chunk.no_sync for chunk in chunks] if len(chunks) > 1 else chunks[0].no_sync
    if overlap_param:
        starts = [chunk.start_param_sync for chunk in chunks]
        config.param_sync_func = starts if len(starts) > 1 else starts[0]
    return Training(chunks=chunks, optimizer=optimizer, config=config)


def _transformer(setup: Setup) -> Any:
    import torch
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    dtype = getattr(torch, setup.dtype)
    values: dict[str, Any] = {
        "num_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "ffn_hidden_size": 48,
        "normalization": "RMSNorm",
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "use_cpu_initialization": True,
        "tensor_model_parallel_size": setup.tp,
        "pipeline_model_parallel_size": setup.pp,
        "virtual_pipeline_model_parallel_size": setup.vpp,
        "expert_model_parallel_size": setup.ep,
        "pipeline_dtype": dtype,
        "params_dtype": dtype,
        "sequence_parallel": setup.sequence_parallel,
        "calculate_per_token_loss": setup.per_token_loss,
        "bf16": setup.dtype == "bfloat16",
        "fp16": setup.dtype == "float16",
        "gradient_accumulation_fusion": False,
        "persist_layer_norm": False,
        "bias_activation_fusion": False,
        "masked_softmax_fusion": False,
        "bias_dropout_fusion": False,
        "apply_rope_fusion": False,
        "batch_p2p_comm": False,
    }
    kind = MLATransformerConfig if "kv_lora_rank" in setup.transformer else TransformerConfig
    return kind(**(values | setup.transformer))


def _models(setup: Setup, config: Any) -> list[Any]:
    from megatron.core import parallel_state as state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    latent = bool(getattr(config, "multi_latent_attention", False))
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, normalization="RMSNorm", multi_latent_attention=latent
    )
    if setup.sequence_parallel:
        spec = _with_marked_norms(spec, config)
    models = []
    for stage in range(setup.vpp or 1):
        virtual = {"vp_stage": stage} if setup.vpp else {}
        ends = {"ignore_virtual": False, **virtual} if setup.vpp else {}
        models.append(
            GPTModel(
                config,
                spec,
                vocab_size=VOCABULARY,
                max_sequence_length=LENGTH,
                pre_process=state.is_pipeline_first_stage(**ends),
                post_process=state.is_pipeline_last_stage(**ends),
                position_embedding_type="none" if latent else "rope",
                share_embeddings_and_output_weights=False,
                **virtual,
            )
        )
    return models


def _with_marked_norms(spec: Any, config: Any) -> Any:
    """Megatron's local norms refuse sequence parallelism; ours do not."""
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    from primus_hydra.backends.megatron.norm import local_norm

    norm = local_norm(config)
    spec.submodules.input_layernorm = norm
    spec.submodules.pre_mlp_layernorm = norm
    return TransformerBlockSubmodules(layer_specs=[spec] * config.num_layers, layer_norm=norm)


def train(training: Training, steps: int) -> list[float]:
    """Train some steps; return the mean loss of each on the last pipeline stage, nothing on the others."""
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func

    losses = []
    for _ in range(steps):
        for chunk in training.chunks:
            chunk.zero_grad_buffer()
        training.optimizer.zero_grad()
        iterators = [_batches(training.steps_done) for _ in training.chunks]
        seen = get_forward_backward_func()(
            forward_step_func=_forward,
            data_iterator=iterators if len(iterators) > 1 else iterators[0],
            model=training.chunks if len(iterators) > 1 else training.chunks[0],
            num_microbatches=MICROBATCHES,
            seq_length=LENGTH,
            micro_batch_size=ROWS,
            forward_only=False,
        )
        training.optimizer.step()
        training.steps_done += 1
        losses += [torch.stack([entry["loss"] for entry in seen]).mean().item()] if seen else []
    return losses


def _batches(step: int) -> Any:
    import torch
    from megatron.core import parallel_state

    for microbatch in range(MICROBATCHES):
        seed = 1000 * step + 10 * microbatch + parallel_state.get_data_parallel_rank()
        generator = torch.Generator().manual_seed(seed)
        # Numbers that count up from a random start: there is something to learn.
        start = torch.randint(VOCABULARY, (ROWS, 1), generator=generator)
        yield (start + torch.arange(LENGTH + 1)) % VOCABULARY


def _forward(batches: Any, model: Any) -> Any:
    import torch

    rows = next(batches)
    positions = torch.arange(LENGTH).expand(ROWS, -1)
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).triu(1)
    output = model(rows[:, :-1], positions, mask, labels=rows[:, 1:])
    return output, functools.partial(_loss, model.config.calculate_per_token_loss)


def _loss(per_token: bool, output: Any) -> Any:
    import torch

    mean = output.float().mean()
    seen = {"loss": mean.detach().clone()}
    if not per_token:
        return mean, seen
    return output.float().sum(), torch.tensor(output.numel(), dtype=torch.int), seen


def _sharded(training: Training, form: str, loading: bool) -> dict[str, Any]:
    state: dict[str, Any] = {
        f"model{index}" if len(training.chunks) > 1 else "model": chunk.module.sharded_state_dict()
        for index, chunk in enumerate(training.chunks)
    }
    state["optimizer"] = training.optimizer.sharded_state_dict(
        dict(state), is_loading=loading, metadata={"distrib_optim_sharding_type": form}
    )
    return state


def save(training: Training, folder: Path, form: str = "fully_reshardable", **options: Any) -> Any:
    """Write a checkpoint; `options` are those of dist_checkpointing.save, whose answer is returned."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    # Megatron's own queue comes with a process that a rank which ends by os._exit would leave behind.
    filesystem_async._results_queue = queue.SimpleQueue()
    folder.mkdir(parents=True, exist_ok=True)
    return dist_checkpointing.save(_sharded(training, form, loading=False), str(folder), **options)


def load(training: Training, folder: Path, steps_done: int, form: str = "fully_reshardable", **options: Any) -> None:
    """Read a checkpoint into a training that has just been built."""
    from megatron.core import dist_checkpointing

    state = dist_checkpointing.load(_sharded(training, form, loading=True), str(folder), **options)
    for index, chunk in enumerate(training.chunks):
        chunk.module.load_state_dict(state[f"model{index}" if len(training.chunks) > 1 else "model"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.steps_done = steps_done
