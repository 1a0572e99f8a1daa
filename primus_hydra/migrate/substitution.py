"""`${VAR}` and `${VAR:default}` in Primus's YAML: what its loader makes of them, and how ours spells the same.

Only a string in which something was put in is cast, and then as a whole: to true or false, a whole number or a float.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?::([^}]*))?\}")
_WHOLE: Final = re.compile(r"-?\d+")
_FLOAT: Final = re.compile(r"[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./-]+")


class UnsetVariableError(KeyError):
    """A variable that has no default and is not set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def substitute(text: str, environment: Mapping[str, str]) -> str | int | float | bool:
    """Return text with its variables put in, cast if there were any; raises UnsetVariableError."""
    if _VARIABLE.search(text) is None:
        return text
    return cast(_VARIABLE.sub(lambda match: _value(match, environment), text))


def has_variables(text: str) -> bool:
    """Whether something would be put in."""
    return _VARIABLE.search(text) is not None


def is_one_variable(text: str) -> bool:
    """Whether a text is one variable and nothing else."""
    return _VARIABLE.fullmatch(text) is not None


def cast(text: str) -> str | int | float | bool:
    """Return the bool, whole number or float that a text spells, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def in_our_words(text: str) -> str:
    """Return the text with interpolations of ours: `${A:b}` becomes `${env:A,b}`."""
    return _VARIABLE.sub(lambda match: _ours(match[1], match[2]), text)


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = match[1], match[2]
    if name in environment:
        return environment[name]
    if default is None:
        raise UnsetVariableError(name)
    return default


def _ours(name: str, default: str | None) -> str:
    if default is None:
        return f"${{env:{name}}}"
    # The text null would be no value at all, and other letters mean something to OmegaConf.
    plain = _PLAIN.fullmatch(default) and default.lower() != "null"
    quoted = default if plain else "'" + default.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"${{env:{name},{quoted}}}"
