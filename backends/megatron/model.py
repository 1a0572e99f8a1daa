"""The part of the model that this rank holds: one chunk, or several under virtual pipeline stages.

Tensor parallel ranks cut one and the same matrix, so their number does not change the first weights where these are
drawn on a processor. Pipeline stages and expert parallel ranks draw from streams of their own: layouts that differ in
those start alike only from a checkpoint.
"""

from __future__ import annotations

from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe.moe_layer import MoELayer

from primus_hydra.backends.megatron.layer_spec import spec_for
from primus_hydra.backends.megatron.sections import CoreConfig, Stage


def build_chunks(config: CoreConfig) -> list[MegatronModule]:
    """Return the chunks of this rank, in the order of their stages; needs the parallel groups."""
    return [_build(config, stage) for stage in _stages(config)]


def _stages(config: CoreConfig) -> list[Stage]:
    chunks = config.transformer.virtual_pipeline_model_parallel_size
    if chunks is None:
        return [_stage(None)]
    return [_stage(number) for number in range(chunks)]


def _stage(vp_stage: int | None) -> Stage:
    virtual = vp_stage is not None
    return Stage(
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=not virtual, vp_stage=vp_stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=not virtual, vp_stage=vp_stage),
        vp_stage=vp_stage,
    )


def _build(config: CoreConfig, stage: Stage) -> MegatronModule:
    spec = spec_for(config.transformer, config.model, stage.vp_stage)
    chunk: MegatronModule = config.model.build(config.transformer, spec, stage)
    # The pipeline schedules ask every chunk for its kind.
    chunk.model_type = ModelType.encoder_or_decoder
    if config.transformer.expert_tensor_parallel_size != config.transformer.tensor_model_parallel_size:
        _reduce_experts_apart(chunk)
    return chunk


def _reduce_experts_apart(chunk: MegatronModule) -> None:
    """Sum the gradients of experts over the ranks that copy them, which are not those that copy everything else.

    Megatron tells experts apart only where expert parallelism splits them. With `etp` other than `tp` they are copied
    over tensor parallel ranks as well, and would drift apart there.
    """
    for module in chunk.modules():
        if isinstance(module, MoELayer):
            for parameter in module.experts.parameters():
                parameter.allreduce = False
