"""torchtitan's configurations as recipes: TOML files (up to 0.2), and functions that return a `Trainer.Config` (0.3).

A function is read, never run: the keyword arguments of the calls in it, as far as they are plain values, and the
assignments to attributes below them. Refuses text that is neither, and a function that is not there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import Problem, UserError
from primus_hydra.migrate.given import Given
from primus_hydra.migrate.recipe import Recipe

_MODES: Final = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}


def read_toml(path: Path) -> Recipe:
    """Read a TOML file; raises UserError for one that is none."""
    text = path.read_text(encoding="utf-8-sig")
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(Problem(what=f"is not valid TOML: {error}", where=str(path))) from None
    lines = _toml_lines(text)
    keys = {name: Given(value=value, where=f"{path}:{lines.get(name, 1)}") for name, value in _flat(tree, "")}
    return Recipe(kind="torchtitan", title=path.name, framework="torchtitan", keys=keys, preset=_flavor(keys))


def read_function(path: Path, function: str | None) -> Recipe:
    """Read one function of a Python file; raises UserError, naming the functions, where it is not clear which."""
    try:
        module = ast.parse(path.read_text(encoding="utf-8-sig"))
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        raise UserError(Problem(what=f"is not valid Python: {error.msg}", where=where)) from None
    found = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    chosen = function or (next(iter(found)) if len(found) == 1 else None)
    if chosen not in found:
        what = f"has no function {chosen}" if chosen else "holds several functions" if found else "holds no function"
        near = did_you_mean(chosen, found) if chosen else None
        hint = near or f"choose one with task.function: {', '.join(found)}"
        raise UserError(Problem(key="task.function", what=f"{path.name} {what}", hint=hint if found else None))
    keys = {name: Given(value=value, where=f"{path}:{line}") for name, value, line in _settings(found[chosen])}
    return Recipe(kind="torchtitan", title=f"{path.name}, {chosen}", framework="torchtitan", keys=keys, preset=chosen)


def _flavor(keys: dict[str, Given]) -> str | None:
    """Return family and size in one word, as our models are called."""
    parts = [str(keys[name].value) for name in ("model.name", "model.flavor") if name in keys]
    return "_".join(parts) if len(parts) == 2 else None


def _flat(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            yield from _flat(value, path)
        else:
            yield path, value


def _toml_lines(text: str) -> dict[str, int]:
    """Return the line of each key that stands on a line of its own."""
    section, lines = "", {}
    for number, line in enumerate(text.splitlines(), start=1):
        table = re.match(r"\s*\[([\w.\-]+)\]", line)
        key = re.match(r"\s*([\w.\-]+)\s*=", line)
        if table:
            section = f"{table[1]}."
        elif key:
            lines[f"{section}{key[1]}"] = number
    return lines


def _settings(function: ast.FunctionDef) -> Iterator[tuple[str, Any, int]]:
    """Yield key, value and line of everything that a function sets."""
    for node in function.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            path = _attribute(node.targets[0])
            yield from _value(node.value, path) if path or isinstance(node.value, ast.Call) else ()
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            yield from _value(node.value, "")


def _attribute(node: ast.expr) -> str:
    """Return the path of `config.training.steps` below the variable; empty for the variable itself."""
    return f"{_attribute(node.value)}.{node.attr}".lstrip(".") if isinstance(node, ast.Attribute) else ""


def _value(node: ast.expr, path: str) -> Iterator[tuple[str, Any, int]]:
    if not isinstance(node, ast.Call):
        try:
            yield path, ast.literal_eval(node), node.lineno
        except (ValueError, TypeError):
            yield path, ast.unparse(node), node.lineno
        return
    name = _called(node)
    if name == "model_registry":
        yield from _registered(node)
    elif path.endswith("activation_checkpoint") and name in _MODES:
        yield f"{path}.mode", _MODES[name], node.lineno
    for word in node.keywords if name != "model_registry" else ():
        if word.arg:
            yield from _value(word.value, f"{path}.{word.arg}".lstrip("."))


def _registered(node: ast.Call) -> Iterator[tuple[str, Any, int]]:
    flavors = [item.value for item in node.args if isinstance(item, ast.Constant)]
    if flavors:
        yield "model.flavor", flavors[0], node.lineno
    for word in node.keywords:
        if word.arg == "converters" and isinstance(word.value, ast.List):
            yield "model.converters", [ast.unparse(item) for item in word.value.elts], node.lineno


def _called(node: ast.Call) -> str:
    names = [part for part in ast.unparse(node.func).split(".") if part != "Config"]
    return names[-1]
