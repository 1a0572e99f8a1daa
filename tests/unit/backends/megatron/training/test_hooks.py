"""Functions of a module are replaced for a while, and put back in any case."""

from __future__ import annotations

import types

import pytest

from primus_hydra.backends.megatron.training.hooks import Hooks


def module() -> types.ModuleType:
    made = types.ModuleType("upstream")
    made.add = lambda left, right: left + right  # type: ignore[attr-defined]
    return made


def test_a_replacement_may_call_the_original_and_goes_again() -> None:
    upstream, hooks = module(), Hooks()
    original = upstream.add
    hooks.replace(upstream, "add", lambda add: lambda left, right: 10 * add(left, right))
    hooks.replace(upstream, "add", lambda add: lambda left, right: add(left, right) + 1)
    assert upstream.add(1, 2) == 31
    hooks.remove()
    assert upstream.add is original


def test_a_function_that_upstream_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="subtract"):
        Hooks().replace(module(), "subtract", lambda original: original)
