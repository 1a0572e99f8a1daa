"""The patch of the distributed optimizer's state, where torch's AdamW stands in for a fused one."""

from __future__ import annotations

import functools
import sys
from typing import Any

from primus_hydra.patches.megatron.conditions import BACKENDS, VERSIONS, installed
from primus_hydra.patching import PatchContext, register_patch

_MODULE = "megatron.core.optimizer.distrib_optimizer"


def torch_adam(context: PatchContext) -> bool:
    """Neither Transformer Engine nor Apex brings a fused Adam."""
    module = sys.modules.get(_MODULE)
    if module is not None:
        # One that is installed but cannot be imported does not count for Megatron.
        return not getattr(module, "HAVE_APEX_OR_TE", True)
    return not (installed("transformer_engine") or installed("apex"))


@register_patch(
    "megatron.distopt-adam-state",
    backend=BACKENDS,
    phase="build_args",
    versions=VERSIONS,
    condition=torch_adam,
    tags=("correctness",),
    why="with torch's AdamW the distributed optimizer cannot be saved or loaded before its first step, copies into "
    "parameters that need gradients, and after loading counts every step once per parameter, because all share one "
    "`step`: a resumed run silently takes other steps than one that never stopped",
)
def keep_a_step_for_each_parameter(context: PatchContext) -> None:
    """Give every parameter its state before the state is asked for, and its own `step` after loading."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    if hasattr(DistributedOptimizer.state_dict, "__wrapped__"):
        return
    _prime_before_reading(DistributedOptimizer)
    _load_without_sharing(DistributedOptimizer)
    _copy_what_was_saved(DistributedOptimizer)


def _prime_before_reading(optimizer_class: Any) -> None:
    original = optimizer_class.state_dict

    @functools.wraps(original)
    def state_dict(self: Any) -> Any:
        _prime(self.optimizer)
        return original(self)

    optimizer_class.state_dict = state_dict


def _prime(adam: Any) -> None:
    """Create the state that AdamW creates in its first step, where there is none."""
    import torch

    for group in adam.param_groups:
        for parameter in group["params"]:
            if not adam.state[parameter]:
                adam.state[parameter].update(
                    step=torch.tensor(0.0),
                    exp_avg=torch.zeros_like(parameter),
                    exp_avg_sq=torch.zeros_like(parameter),
                )


def _load_without_sharing(optimizer_class: Any) -> None:
    import torch

    original = optimizer_class.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self: Any, state_dict: Any) -> None:
        # Loading copies into the main parameters, which are leaves that need gradients.
        with torch.no_grad():
            original(self, state_dict)
        for state in self.optimizer.state.values():
            if "step" in state:
                state["step"] = state["step"].clone()

    optimizer_class.load_state_dict = load_state_dict


def _copy_what_was_saved(optimizer_class: Any) -> None:
    original = optimizer_class._set_main_param_and_optimizer_states

    @functools.wraps(original)
    def set_states(self: Any, model_param: Any, tensors: dict[str, Any]) -> None:
        # The original asks `tensors` for every tensor of the state. `step` is saved with the groups and loaded by now;
        # in one format `tensors` holds the one from before the loading.
        group, order = self.model_param_group_index_map[model_param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        original(self, model_param, tensors | {name: state[name] for name in state if name == "step"})

    optimizer_class._set_main_param_and_optimizer_states = set_states
