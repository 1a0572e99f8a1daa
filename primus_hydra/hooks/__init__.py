"""Hooks: what users run around the ranks of an attempt.

A function named by `_target_` may ask for `hook: HookContext`, return values, and raise `Skip` where it has nothing to
do.
"""

from primus_hydra.hooks.context import HookContext, Skip

__all__ = ["HookContext", "Skip"]
