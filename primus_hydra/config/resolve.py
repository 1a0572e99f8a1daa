"""Resolve a composed configuration to plain data, and keep every interpolation that fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from primus_hydra.config.resolvers import MissingVariable
from primus_hydra.errors import Problem


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
    try:
        value = node[name]
    except MissingMandatoryValue:
        problems.append(Problem(key=path, what="needs a value (it is marked ???)", hint=f"set {path}=..."))
        return None
    except OmegaConfBaseException as error:
        problems.append(Problem(key=path, what=_reason(error)))
        return None
    if isinstance(value, DictConfig):
        return {str(key): _value(value, key, f"{path}.{key!s}", problems) for key in value}
    if isinstance(value, ListConfig):
        return [_value(value, index, f"{path}[{index}]", problems) for index in range(len(value))]
    return value


def _reason(error: OmegaConfBaseException) -> str:
    missing = error.__cause__ if isinstance(error.__cause__, MissingVariable) else None
    if missing is not None:
        return str(missing)
    return str(error).splitlines()[0] or type(error).__name__
