"""torchtitan's validator on our held-out split: the same samples at every measurement, and never past their end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torchtitan.components.validate import Validator


class HeldOutValidator(Validator):  # type: ignore[misc]
    """Measures every `freq` steps and after the last one, instead of also after the first."""

    @dataclass(kw_only=True, slots=True)
    class Config(Validator.Config):  # type: ignore[misc]
        """`last_step` is the training's; it is always followed by a measurement."""

        last_step: int

    def __init__(self, config: Config, **components: Any) -> None:
        super().__init__(config, **components)
        # torchtitan lets a loader with a number of steps start over; a held-out sample must not count twice.
        self.dl_config = replace(config.dataloader, infinite=False)

    def should_validate(self, step: int) -> bool:
        """Whether the loss is measured after `step`."""
        return measures_at(step, self.config.freq, self.config.last_step)


def measures_at(step: int, every: int, last_step: int) -> bool:
    """Whether validation follows a step."""
    return step % every == 0 or step == last_step
