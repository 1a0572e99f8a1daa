"""The optimizer's part of a checkpoint, loaded into another kind of optimizer where that is possible.

Megatron's plain and its distributed optimizer describe themselves differently. What they hold is the same: moments and
float32 parameters for each weight, one count of steps, and a loss scaler. The tensors are saved under the weight's
name, so either can read the other's, split over other ranks too. Only the format `dp_reshardable` cannot be read so:
it cuts the buffers of one layout, and only the number of data-parallel ranks may change.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace
from megatron.core.dist_checkpointing.mapping import LocalNonpersistentObject, ShardedTensor, ShardedTensorFactory
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params

DP_RESHARDABLE, FULLY_RESHARDABLE = "dp_reshardable", "fully_reshardable"
_STATE = "optimizer.state."


@dataclass(frozen=True, kw_only=True)
class OptimizerFacts:
    """How an optimizer was saved: `format` is None for a plain one; `started` is False before the first update."""

    format: str | None
    started: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def facts_of(optimizer: MegatronOptimizer, distributed_format: str) -> OptimizerFacts:
    """Return how this optimizer is saved now."""
    parts = _parts(optimizer)
    distributed = any(isinstance(part, DistributedOptimizer) for part in parts)
    return OptimizerFacts(
        format=distributed_format if distributed else None,
        started=any(len(part.optimizer.state) > 0 for part in parts),
    )


def shards_to_save(optimizer: MegatronOptimizer, model: dict[str, Any], facts: OptimizerFacts) -> dict[str, Any]:
    """Return the optimizer's state with its shards; `model` holds the shards of the weights. Collective."""
    with _only_new_garbage():
        state: dict[str, Any] = optimizer.sharded_state_dict(model, metadata=_metadata(facts.format))
    return state


@dataclass(frozen=True, kw_only=True)
class WantedShards:
    """What to read for an optimizer: `state`, and `weights` afterwards, a tensor of which may be in both."""

    state: dict[str, Any]
    weights: dict[str, Any]

    def together(self, state: Any, weights: dict[str, Any]) -> Any:
        """Return the state, as read, with the weights in their places."""
        return dict_list_map_inplace(lambda value: weights[value.name] if isinstance(value, _Later) else value, state)


def shards_to_load(
    optimizer: MegatronOptimizer, model: dict[str, Any], saved: OptimizerFacts, available: Collection[str]
) -> WantedShards:
    """Return the shards that this optimizer needs, under the names in which they were saved; collective.

    `available` are the names of the checkpoint's tensors.
    """
    with _only_new_garbage():
        state: dict[str, Any] = optimizer.sharded_state_dict(
            model, is_loading=True, metadata=_metadata(saved.format or FULLY_RESHARDABLE)
        )
    weights: dict[str, Any] = {}

    def named_as_saved(value: Any) -> Any:
        if not isinstance(value, ShardedTensor | ShardedTensorFactory) or value.key in available:
            return value
        value.key = next((name for name in _stand_ins(value.key) if name in available), value.key)
        if value.key.startswith(_STATE):
            return value
        later = _Later(str(len(weights)))
        weights[later.name] = value
        return LocalNonpersistentObject(later)

    return WantedShards(state=dict_list_map_inplace(named_as_saved, state), weights=weights)


def restore(optimizer: MegatronOptimizer, loaded: Any, common: Any, saved: OptimizerFacts) -> None:
    """Fill the optimizer: `loaded` as `shards_to_load`, read; `common` is what was saved once for all ranks.

    Learning rates and the like stay as the optimizer has them: they follow from the configuration and the step.
    """
    parts = _parts(optimizer)
    if saved.format == DP_RESHARDABLE:
        for part in [loaded] if len(parts) == 1 else loaded.values():
            part["param_state_sharding_type"] = DP_RESHARDABLE
        optimizer.load_state_dict(loaded)
        return
    numbers = _numbers(common)
    # Experts of other ranks have an optimizer of their own, with the same count of steps and the same scaler.
    filled = [
        _filled(part, loaded if len(parts) == 1 else loaded[index], *numbers[min(index, len(numbers) - 1)])
        for index, part in enumerate(parts)
    ]
    optimizer.load_state_dict(filled[0] if len(parts) == 1 else dict(enumerate(filled)))


@dataclass(frozen=True)
class _Later:
    """Stands in a state for a tensor that is read afterwards: nothing can be read twice at once."""

    name: str


def _parts(optimizer: MegatronOptimizer) -> list[Any]:
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


@contextmanager
def _only_new_garbage() -> Iterator[None]:
    """Keep what exists out of the search for garbage that Megatron makes in each save, which takes a second."""
    if gc.get_freeze_count() > 0:
        yield
        return
    gc.collect(1)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _metadata(sharding: str | None) -> dict[str, Any]:
    # Without the prefix a weight's state has one name, however many optimizers there are.
    common = {"chained_optim_avoid_prefix": True}
    return common if sharding is None else common | {"distrib_optim_sharding_type": sharding}


def _stand_ins(name: str) -> Iterator[str]:
    """Yield under which other names a float32 parameter may have been saved."""
    kind, _, weight = name.removeprefix(_STATE).partition(".")
    if name.startswith(_STATE) and kind in ("param", "fp32_param"):
        yield f"{_STATE}{'fp32_param' if kind == 'param' else 'param'}.{weight}"
        # A plain optimizer of a float32 model has no copy.
        yield weight


def _numbers(common: Any) -> list[tuple[float | None, Any]]:
    """Return count of steps and loss scaler of each saved optimizer."""
    parts = [common[index] for index in sorted(common)] if all(isinstance(key, int) for key in common) else [common]
    return [(_step(part.get("optimizer", part)), part.get("grad_scaler")) for part in parts]


def _step(inner: Any) -> float | None:
    step = inner.get("state", {}).get("common_step", inner["param_groups"][0].get("step"))
    return None if step is None else float(step)


def _filled(part: Any, loaded: Any, step: float | None, scaler: Any) -> dict[str, Any]:
    """Return the state that an optimizer's own `load_state_dict` takes."""
    scaling = {} if scaler is None else {"grad_scaler": scaler}
    if isinstance(part, DistributedOptimizer):
        groups = [
            {name: value for name, value in group.items() if name != "params"} | {"step": step}
            for group in part.optimizer.param_groups
        ]
        return {
            "optimizer": {"param_groups": groups},
            "param_state": loaded["param_state"],
            "param_state_sharding_type": FULLY_RESHARDABLE,
            **scaling,
        }
    if isinstance(part, Float16OptimizerWithFloat16Params):
        inner = _filled_inner(part, loaded["optimizer"], step)
        return {"optimizer": inner, "fp32_from_fp16_params": loaded["fp32_from_fp16_params"], **scaling}
    return _filled_inner(part, loaded, step)


def _filled_inner(part: Any, loaded: Any, step: float | None) -> dict[str, Any]:
    groups = part.optimizer.state_dict()["param_groups"]
    state = dict(loaded["state"])
    if step is not None and type(part.optimizer).__module__.startswith("torch.optim"):
        state["common_step"] = torch.tensor(step)
    elif step is not None:
        # Fused optimizers count once per group.
        groups = [group | {"step": int(step)} for group in groups]
    return {"state": state, "param_groups": groups}
