"""Builds the torchtitan `ModelSpec` of any neutral model that `limits.model_problems` lets pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchtitan.components.optimizer import register_moe_load_balancing_hook
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.deepseek_v3 import parallelize_deepseekv3
from torchtitan.models.deepseek_v3.state_dict_adapter import DeepSeekV3StateDictAdapter
from torchtitan.models.llama3 import parallelize_llama
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.models.qwen3 import parallelize_qwen3
from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec

from primus_hydra.backends.torchtitan.models import float8
from primus_hydra.backends.torchtitan.models.deepseek import deepseek_config
from primus_hydra.backends.torchtitan.models.hf_names import MixtralStateDictAdapter, Qwen2StateDictAdapter
from primus_hydra.backends.torchtitan.models.limits import model_problems
from primus_hydra.backends.torchtitan.models.llama import llama_config
from primus_hydra.backends.torchtitan.models.qwen3 import qwen3_config
from primus_hydra.backends.torchtitan.models.shape import AttentionBackend, Shape
from primus_hydra.config.schema.model import Architecture, ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.config.schema.training import PrecisionConfig
from primus_hydra.errors import Problem, raise_all


@dataclass(frozen=True, kw_only=True)
class _Family:
    name: str
    config: Callable[[Shape], Any]
    parallelize: Callable[..., Any]
    adapter: type[Any]
    after_optimizer: Callable[..., Any] | None = None


_LLAMA = _Family(name="llama3", config=llama_config, parallelize=parallelize_llama, adapter=Llama3StateDictAdapter)
_QWEN3 = _Family(
    name="qwen3",
    config=qwen3_config,
    parallelize=parallelize_qwen3,
    adapter=Qwen3StateDictAdapter,
    after_optimizer=register_moe_load_balancing_hook,
)
_DEEPSEEK = _Family(
    name="deepseek_v3",
    config=deepseek_config,
    parallelize=parallelize_deepseekv3,
    adapter=DeepSeekV3StateDictAdapter,
    after_optimizer=register_moe_load_balancing_hook,
)
_FAMILIES: dict[Architecture, _Family] = {
    "llama": _LLAMA,
    "qwen2": replace(_QWEN3, adapter=Qwen2StateDictAdapter),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "mixtral": replace(_QWEN3, adapter=MixtralStateDictAdapter),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}


def model_spec(
    model: ModelConfig,
    *,
    vocab_size: int,
    seq_length: int,
    global_batch_size: int | None = None,
    parallel: ParallelConfig | None = None,
    attention: AttentionBackend = "flex",
    precision: PrecisionConfig | None = None,
    compiled: bool = False,
) -> ModelSpec:
    """Return torchtitan's specification of `model` with `vocab_size` rows, for sequences of `seq_length` tokens.

    `global_batch_size` in sequences is needed only by a balance loss (`aux_loss_alpha`). `parallel` defaults to one
    rank; `precision` adds fp8 and `compiled` says whether the model will be compiled. On a processor pass "flex" and
    activate the CPU override (`cpu_attention.CPU_ATTENTION`).
    Raises UserError with everything that torchtitan cannot build, HostError when the machine lacks fp8.
    """
    problems = model_problems(model, parallel or ParallelConfig(), vocab_size=vocab_size, seq_length=seq_length)
    if model.aux_loss_alpha and model.is_moe and global_batch_size is None:
        problems.append(Problem(key="training.global_batch_size", what="the balance loss needs it"))
    raise_all(problems)
    shape = Shape(
        model=model,
        vocab_size=vocab_size,
        seq_length=seq_length,
        attention=attention,
        global_batch_size=global_batch_size,
    )
    converters: Sequence[Any] = float8.float8_converters(precision, compiled=compiled) if precision else ()
    return _specification(shape, converters)


def _specification(shape: Shape, converters: Sequence[Any]) -> ModelSpec:
    family = _FAMILIES[shape.model.architecture]
    return ModelSpec(
        name=family.name,
        flavor=shape.model.name,
        model=float8.convert(family.config(shape), list(converters)),
        parallelize_fn=family.parallelize,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=family.after_optimizer,
        state_dict_adapter=family.adapter,
    )
