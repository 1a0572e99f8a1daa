"""Build the core trainer's configuration: neutral values with the user's native ones over them, each class once.

Megatron fills fields from each other when a class is built (an initialiser from its spread, a size from another one),
so the user's values must be there at that moment and nothing may be built a second time from the result.
What a class of Megatron refuses becomes a problem at its section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from primus_hydra.backends.megatron.native_keys import TARGETS, check_tree, homes_in
from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.backends.megatron.shared_keys import spread
from primus_hydra.errors import Problem
from primus_hydra.native.catalog import LiveCatalog
from primus_hydra.native.describe import name_of
from primus_hydra.native.overlay import Builder

Neutral = Mapping[str, tuple[type[Any], Mapping[str, object]]]
"""Section to its class and the keyword arguments that the neutral keys give it; no `dataset` where there is none."""


def build_core(
    neutral: Neutral, tree: Mapping[str, Any], *, stop_agreed: Callable[[int], bool]
) -> tuple[CoreConfig | None, list[Problem]]:
    """Return the configuration with the keys of `tree` (`backend.config`) laid over it, or None and every problem."""
    classes: dict[str, type[Any]] = {"": CoreConfig, **{section: cls for section, (cls, _) in neutral.items()}}
    catalog = LiveCatalog({name_of(cls): cls for cls in classes.values()}, TARGETS)
    placed = {section: name_of(cls) for section, cls in classes.items()}
    free, problems = check_tree(tree, catalog, placed)
    if problems:
        return None, problems
    values = spread(free, homes_in(catalog, placed))
    builder = Builder(TARGETS.backend, catalog)
    built = {
        section: builder.construct(cls, arguments, values.get(section, {}), section)
        for section, (cls, arguments) in neutral.items()
    }
    if builder.problems:
        return None, builder.problems
    return CoreConfig(**{"dataset": None, **built}, stop_agreed=stop_agreed), []
