"""Learning rate and weight decay of every optimizer step.

The learning rate is torchtitan's for the same settings: `warmup_steps` steps that rise to the peak, a plateau, and
`decay_steps` steps that fall to `min_lr_ratio` of it, reached one step after the last. Weight decay moves from its
start to its end value over the whole run, as in Megatron. Both are functions of the step alone, so a run that is
stopped and resumed, or whose float16 scaler skips an update, follows one curve.
"""

from __future__ import annotations

import math
from typing import Any

from megatron.core.optimizer import MegatronOptimizer

from primus_hydra.backends.megatron.sections import Schedule


def lr_factor(settings: Schedule, step: int) -> float:
    """Return the part of the peak learning rate with which optimizer step `step`, counted from 0, is made."""
    warmup = min(settings.warmup_steps, settings.steps)
    decay = _decay_steps(settings, warmup)
    # One step more than there are, so that the last one does not fall to the end value.
    first_decayed = settings.steps + 1 - decay
    if step < warmup:
        return (step + 1) / warmup
    if step < first_decayed:
        return 1.0
    progress = (step + 1 - first_decayed) / decay
    return settings.min_lr_ratio + (1 - settings.min_lr_ratio) * _remaining(settings.decay, progress)


def weight_decay(settings: Schedule, step: int) -> float:
    """Return the weight decay of optimizer step `step`, counted from 0."""
    start, end = settings.start_weight_decay, settings.end_weight_decay
    progress = min(step / settings.steps, 1.0)
    match settings.weight_decay_incr_style:
        case "constant":
            return end
        case "linear":
            return start + (end - start) * progress
        case "cosine":
            return start + (end - start) * 0.5 * (1.0 - math.cos(math.pi * progress))


def _decay_steps(settings: Schedule, warmup: int) -> int:
    if settings.decay == "constant":
        return 0
    rest = settings.steps - warmup
    return rest if settings.decay_steps is None else min(settings.decay_steps, rest)


def _remaining(shape: str, progress: float) -> float:
    if shape == "linear":
        return 1 - progress
    if shape == "sqrt":
        return 1 - math.sqrt(progress)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


class StepSchedule:
    """Sets the rates of an optimizer's parameter groups; `step` is the next step to be made, counted from 0.

    A group's own `max_lr` is its peak, and `wd_mult` multiplies its weight decay.
    """

    def __init__(self, settings: Schedule, optimizer: MegatronOptimizer) -> None:
        self._settings = settings
        self._optimizer = optimizer
        self.go_to(0)

    @property
    def lr(self) -> float:
        """Highest learning rate of any parameter group in the next step."""
        return max((float(group["lr"]) for group in self._optimizer.param_groups), default=math.nan)

    def go_to(self, step: int) -> None:
        """Set what step `step` is made with."""
        self.step = step
        factor, decay = lr_factor(self._settings, step), weight_decay(self._settings, step)
        for group in self._optimizer.param_groups:
            group["lr"] = group["max_lr"] * factor * group.get("lr_mult", 1.0)
            group["weight_decay"] = decay * group.get("wd_mult", 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Return where the schedule stands; its shape follows from the configuration."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was saved."""
        self.go_to(int(state["step"]))
