"""From bare chunks to what is trained: number format, gradient buffers, optimizer, and the hooks between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.optimizer import MegatronOptimizer, get_megatron_optimizer
from megatron.core.transformer.module import Float16Module, MegatronModule

from primus_hydra.backends.megatron.sections import CoreConfig


def wrap(chunks: list[MegatronModule], config: CoreConfig, device: torch.device) -> list[DistributedDataParallel]:
    """Return the chunks on their device, in their number format, with gradient buffers, alike on data-parallel ranks.

    Chunks after the first get one bucket each: only the first one's backward has communication to hide.
    """
    transformer = config.transformer
    half = transformer.bf16 or transformer.fp16
    placed = [chunk.to(device) for chunk in chunks]
    cast = [Float16Module(transformer, chunk) if half else chunk for chunk in placed]
    wrapped = [
        DistributedDataParallel(transformer, config.ddp, chunk, disable_bucketing=number > 0)
        for number, chunk in enumerate(cast)
    ]
    if parallel_state.get_data_parallel_world_size(with_context_parallel=True) > 1:
        for chunk in wrapped:
            chunk.broadcast_params()
    return wrapped


def build_optimizer(
    config: CoreConfig, wrapped: list[DistributedDataParallel], overrides: Mapping[Any, Any]
) -> MegatronOptimizer:
    """Return Megatron's optimizer over the wrapped chunks, and connect it with the pipeline schedules.

    `overrides` are Megatron's per-parameter settings; an empty mapping decays every parameter.
    """
    optimizer = get_megatron_optimizer(config.optimizer, wrapped, dict(overrides))
    _connect(config, wrapped, optimizer)
    return optimizer


def _connect(config: CoreConfig, wrapped: list[DistributedDataParallel], optimizer: MegatronOptimizer) -> None:
    """Give the schedules what they call between the microbatches and after the last one."""
    transformer, ddp = config.transformer, config.ddp
    transformer.grad_scale_func = optimizer.scale_loss
    transformer.finalize_model_grads_func = finalize_model_grads
    if ddp.overlap_grad_reduce:
        transformer.no_sync_func = _one_or_list([chunk.no_sync for chunk in wrapped])
        transformer.grad_sync_func = _one_or_list([chunk.start_grad_sync for chunk in wrapped])
    if ddp.overlap_param_gather and ddp.align_param_gather:
        transformer.param_sync_func = _one_or_list([chunk.start_param_sync for chunk in wrapped])


def disconnect(config: CoreConfig) -> None:
    """Take back what `build_optimizer` put into the configuration, which would keep the model alive."""
    for name in ("grad_scale_func", "finalize_model_grads_func", "no_sync_func", "grad_sync_func", "param_sync_func"):
        setattr(config.transformer, name, None)


@contextmanager
def whole_parameters(config: CoreConfig, wrapped: list[DistributedDataParallel]) -> Iterator[None]:
    """Make sure that every rank holds the updated parameters, for what reads them outside a training step; collective.

    With `overlap_param_gather` the ranks otherwise fetch them piece by piece in the next forward.
    """
    overlapped = config.ddp.use_distributed_optimizer and config.ddp.overlap_param_gather
    hooks = wrapped if overlapped else []
    sync, config.transformer.param_sync_func = config.transformer.param_sync_func, None
    for chunk in hooks:
        chunk.disable_forward_pre_hook()
    try:
        yield
    finally:
        for chunk in hooks:
            chunk.enable_forward_pre_hook()
        config.transformer.param_sync_func = sync


def _one_or_list(functions: list[Callable[..., Any]]) -> Any:
    return functions[0] if len(functions) == 1 else functions
