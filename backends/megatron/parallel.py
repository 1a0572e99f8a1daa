"""Process groups and random states of one training, begun and ended so that another can follow in the same process.

Megatron keeps its groups, its microbatch calculator and its random states in module variables. All of them are set by
`begin` and cleared by `end`, also after a failure.
"""

from __future__ import annotations

import importlib
import logging
import random
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.num_microbatches_calculator import unset_num_microbatches_calculator
from megatron.core.transformer.moe import moe_utils

from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.runtime.contracts import RankContext

_log = logging.getLogger(__name__)

_STAGE_SEEDS = 100
"""Distance between the seeds of neighbouring pipeline ranks, as in Megatron's own training."""


def device(*, cpu: bool) -> torch.device:
    """Return the device of this rank's tensors."""
    return torch.device("cpu") if cpu else torch.device("cuda", torch.cuda.current_device())


def begin(config: CoreConfig, context: RankContext, *, cpu: bool, seed: int, deterministic: bool = False) -> None:
    """Build all groups and seed everything that draws; reads where the ranks meet from the environment.

    `deterministic` makes torch refuse kernels whose result depends on the order of their threads.
    """
    timeout = timedelta(minutes=config.parallel.distributed_timeout_minutes)
    if cpu:
        dist.init_process_group("gloo", rank=context.rank, world_size=context.world_size, timeout=timeout)
    else:
        torch.cuda.set_device(context.local_rank)
        dist.init_process_group(
            "nccl",
            rank=context.rank,
            world_size=context.world_size,
            timeout=timeout,
            device_id=torch.device("cuda", context.local_rank),
        )
    torch.use_deterministic_algorithms(deterministic)
    _build_groups(config)
    seed_everything(seed)


def _build_groups(config: CoreConfig) -> None:
    sizes, settings = config.transformer, config.parallel
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=sizes.tensor_model_parallel_size,
        pipeline_model_parallel_size=sizes.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=sizes.virtual_pipeline_model_parallel_size,
        context_parallel_size=sizes.context_parallel_size,
        hierarchical_context_parallel_sizes=sizes.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=sizes.expert_model_parallel_size,
        expert_tensor_parallel_size=sizes.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=config.ddp.num_distributed_optimizer_instances,
        nccl_communicator_config_path=settings.nccl_communicator_config_path,
        distributed_timeout_minutes=settings.distributed_timeout_minutes,
        use_sharp=settings.use_sharp,
        order=settings.order,
    )


def seed_everything(seed: int) -> None:
    """Seed every generator: alike on the ranks of a stage, so that they can draw what they share."""
    own = seed + _STAGE_SEEDS * parallel_state.get_pipeline_model_parallel_rank()
    random.seed(own)
    np.random.seed(own)
    tensor_parallel.model_parallel_cuda_manual_seed(own, force_reset_rng=True)
    # Last: on a processor Megatron's states and torch's are one generator, and weights are drawn from it.
    torch.manual_seed(own)


def owns_loss() -> bool:
    """Whether this is the one rank that reports: the lowest of those that compute the loss."""
    return bool(
        parallel_state.is_pipeline_last_stage(ignore_virtual=True)
        and parallel_state.get_tensor_model_parallel_rank() == 0
        and parallel_state.get_data_parallel_rank(with_context_parallel=True) == 0
    )


def end(*, abort: bool) -> None:
    """Clear everything that `begin` set. With `abort` nobody is waited for: other ranks may be gone."""
    if abort:
        _abort_groups()
    parallel_state.destroy_model_parallel()
    unset_num_microbatches_calculator()
    torch.use_deterministic_algorithms(False)
    tensor_parallel.get_cuda_rng_tracker().reset()
    _forget_routers()
    if dist.is_initialized():
        dist.destroy_process_group()


def _forget_routers() -> None:
    """Drop what routers recorded, and with it the groups over which it was to be summed: the next training has its own.

    Until megatron-core 0.16 a dictionary holds it, after it an object whose `clear` keeps the groups.
    """
    if hasattr(moe_utils, "get_moe_metrics_tracker"):
        importlib.import_module("megatron.core.transformer.moe.moe_logging").destroy_moe_metrics_tracker()
    else:
        moe_utils.get_moe_layer_wise_logging_tracker().clear()


def _abort_groups() -> None:
    if not dist.is_initialized():
        return
    try:
        dist.distributed_c10d._abort_process_group()
    except Exception as error:  # the failure that led here matters more than this one
        _log.warning("process groups could not be aborted: %s", error)
