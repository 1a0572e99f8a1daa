"""Resolve a composed configuration to plain data, and keep every interpolation that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from primus_hydra.config.hf_resolver import UnusableHfModelError
from primus_hydra.config.keys import all_keys, facts_of
from primus_hydra.config.resolvers import MissingVariable, ToBeGivenError, text_wanted
from primus_hydra.config.suggest import key_hint
from primus_hydra.errors import Problem

T = TypeVar("T", bound=BaseException)
_MISSING_KEY = re.compile(r"Interpolation key '([^']+)' not found")
_UNKNOWN_RESOLVER = re.compile(r"Unsupported interpolation type (\S+)")


def resolve(config: DictConfig) -> tuple[dict[str, Any], list[Problem]]:
    """Return the tree without Hydra's own node as plain data; a value that cannot be resolved becomes None."""
    problems: list[Problem] = []
    tree = {
        str(name): _value(config, name, str(name), problems) for name in config if name not in ("hydra", "defaults")
    }
    return tree, problems


def leaves_of(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted names of all leaves; an empty group counts as a leaf."""
    return list(_leaves(tree, prefix))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree under their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, path))
        else:
            flat[path] = value
    return flat


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[str]:
    yield from flatten(tree, prefix)


def _value(node: DictConfig | ListConfig, name: Any, path: str, problems: list[Problem]) -> Any:
    wants_text = facts_of(path.partition("[")[0]).takes_text
    try:
        with text_wanted(wants_text):
            value = node[name]
    except MissingMandatoryValue:
        problems.append(_to_be_given(path))
        return None
    except (OmegaConfBaseException, RecursionError) as error:
        problems += [problem for problem in _problems(path, error) if problem not in problems]
        return None
    if isinstance(value, DictConfig):
        return {str(key): _value(value, key, f"{path}.{key!s}", problems) for key in value}
    if isinstance(value, ListConfig):
        return [_value(value, index, f"{path}[{index}]", problems) for index in range(len(value))]
    return _as_text(value) if wants_text and OmegaConf.is_interpolation(node, name) else value


def _as_text(value: Any) -> Any:
    """Return what a text key takes from a key of another type; None stays."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _to_be_given(path: str) -> Problem:
    return Problem(key=path, what="needs a value: it is marked ???", hint=f"give it: {path}=VALUE")


def _problems(path: str, error: Exception) -> list[Problem]:
    unusable = _cause(error, UnusableHfModelError)
    return [_problem(path, error)] if unusable is None else list(unusable.problems)


def _problem(path: str, error: Exception) -> Problem:
    if _cause(error, ToBeGivenError) is not None:
        return _to_be_given(path)
    variable = _cause(error, MissingVariable)
    if variable is not None:
        default = f"'${{env:{variable.name},VALUE}}'"
        hint = f"set it (export {variable.name}=...), or give a default, quoted for the shell: {default}"
        return Problem(key=path, what=f"the environment variable {variable.name} is not set", hint=hint)
    said = str(error).splitlines()[0] or type(error).__name__
    if isinstance(error, RecursionError) or "Recursive interpolation" in said:
        return Problem(
            key=path, what="its interpolation leads back to itself", hint="give one of the keys a plain value"
        )
    missing = _MISSING_KEY.search(said)
    if missing is not None:
        what = f"${{{missing[1]}}} names a key that does not exist"
        return Problem(key=path, what=what, hint=key_hint(missing[1], all_keys()))
    resolver = _UNKNOWN_RESOLVER.search(said)
    if resolver is not None:
        what = f"${{{resolver[1]}:...}} is not known"
        return Problem(key=path, what=what, hint="an environment variable is ${env:NAME,DEFAULT}")
    return Problem(key=path, what=f"cannot be resolved: {said}")


def _cause(error: BaseException | None, kind: type[T]) -> T | None:
    """Return the error of a kind that stands behind another one."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error
