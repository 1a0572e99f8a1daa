"""The `${env:NAME,default}` resolver: an environment variable, as text for a text key, else cast as YAML reads it.

`register_resolvers` makes it known, with the other resolvers of this project.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.basecontainer import BaseContainer

from primus_hydra.config.hf_resolver import resolve_hf

_UNSET: Any = object()
_SCALARS = (bool, int, float)


class MissingVariable(KeyError):
    """An environment variable that has no default and is not set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the environment variable {self.name} is not set and ${{env:{self.name}}} gives no default"


_text_wanted: ContextVar[bool] = ContextVar("primus_hydra_text_wanted", default=False)


class ToBeGivenError(Exception):
    """A value that a file marks with ???: somebody must give it."""


def _refuse() -> None:
    raise ToBeGivenError


@contextmanager
def text_wanted(wanted: bool) -> Iterator[None]:
    """Say whether the key that is being resolved takes text, so that a variable arrives as it is."""
    token = _text_wanted.set(wanted)
    try:
        yield
    finally:
        _text_wanted.reset(token)


def read_env(name: str, default: Any = _UNSET) -> Any:
    """Return the variable's value: its text for a text key, else a bool, int or float where the whole text is one.

    Only spellings that survive a round trip are cast: `8` and `true` are, `00123`, `1e5` and `1_000` stay text.
    `${env:NAME,null}` gives None when the variable is not set. Raises MissingVariable.
    """
    text = os.environ.get(name)
    if text is None:
        if default is _UNSET:
            raise MissingVariable(name)
        return default
    return text if _text_wanted.get() else cast_text(text)


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
    """Make `${env:...}` known; safe to call again.

    OmegaConf's public registration hands a resolver its arguments as read (`1e5` as a number). Its table of resolvers
    also offers them as written, which a text key needs.
    """
    BaseContainer._resolvers["env"] = _env
    OmegaConf.register_new_resolver("literal_question_marks", lambda: "???", replace=True)
    OmegaConf.register_new_resolver("to_be_given", _refuse, replace=True)
    OmegaConf.register_new_resolver("hf", resolve_hf, replace=True)


def _env(config: Any, parent: Any, node: Any, args: tuple[Any, ...], written: tuple[str, ...]) -> Any:
    del config, parent, node
    if not 1 <= len(args) <= 2:
        raise ValueError("${env:NAME} or ${env:NAME,DEFAULT}")
    if len(args) == 1:
        return read_env(str(args[0]))
    plain = args[1] is not None and not written[1].startswith(("'", '"', "$"))
    return read_env(str(args[0]), written[1] if plain and _text_wanted.get() else args[1])
