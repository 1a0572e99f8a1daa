"""The `${env:NAME,default}` resolver: an environment variable, cast as YAML would read it."""

from __future__ import annotations

import os
from typing import Any

import yaml
from omegaconf import OmegaConf

_UNSET: Any = object()
_SCALARS = (bool, int, float)


class MissingVariable(KeyError):
    """An environment variable that has no default and is not set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the environment variable {self.name} is not set and ${{env:{self.name}}} gives no default"


def read_env(name: str, default: Any = _UNSET) -> Any:
    """Return the variable's value as bool, int or float where its whole text is one, else as text.

    Only spellings that survive a round trip are cast: `8` and `true` are, `00123`, `1e5` and `1_000` stay text.
    `${env:NAME,null}` gives None when the variable is not set. Raises MissingVariable.
    """
    text = os.environ.get(name)
    if text is None:
        if default is _UNSET:
            raise MissingVariable(name)
        return default
    return cast_text(text)


def cast_text(text: str) -> Any:
    """Cast text that is the plain spelling of a bool, int or float; leave anything else as it is."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, bool):
        return value if text in ("true", "false", "True", "False", "TRUE", "FALSE") else text
    return value if isinstance(value, _SCALARS) and str(value) == text else text


def register_resolvers() -> None:
    """Make `${env:...}` known; safe to call again."""
    OmegaConf.register_new_resolver("env", read_env, replace=True)
