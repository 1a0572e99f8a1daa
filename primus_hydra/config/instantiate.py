"""From a `_target_` in the configuration to a class or an object, for allowed packages only.

Every `_target_` of a tree, nested ones too, is judged by its name before anything is imported. What a name resolves to
must be a class or function that is defined (not only imported) in an allowed module, so `primus_hydra.x.os.system` is
refused twice. Values arrive as plain data and the target's own exceptions pass through.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar, cast, overload

from primus_hydra.config.allow import ENTRY_POINT_GROUP, OWN_PACKAGE, AllowList, installed_allow_list
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import HostError, Problem, UserError, raise_all

T = TypeVar("T")

TARGET = "_target_"
_RESERVED = frozenset({TARGET, "_args_", "_partial_", "_recursive_", "_convert_"})
_SHORT_NAMES = ("backends", "patches", "conf")


def load_target(path: str, expected: type[T], *, key: str = TARGET) -> type[T]:
    """Import the class at a dotted path, which must be `expected` or a subclass.

    `key` is named in messages. Raises UserError for a path that is not allowed, not there or of another type, and
    HostError when the module needs a package that is not installed.
    """
    allowed = installed_allow_list()
    raise_all(_name_problems(path, key, allowed))
    found = _resolve(path, key, allowed)
    if not inspect.isclass(found):
        raise UserError(Problem(key=key, what=f"{path} is a function, expected a {expected.__name__} class"))
    return cast(type[T], _checked_class(found, expected, path, key))


def target_problems(config: Mapping[str, Any], key: str) -> list[Problem]:
    """Judge every `_target_` of a tree by its name, and how it is written; imports nothing. `key` is the tree's."""
    allowed = installed_allow_list()
    nodes = _target_nodes(_plain(config), key)
    return [problem for path, node in nodes for problem in _node_problems(node, path, allowed)]


@overload
def safe_instantiate(config: Any, *args: Any, _expected_: type[T], **kwargs: Any) -> T: ...


@overload
def safe_instantiate(config: Any, *args: Any, _expected_: None = None, **kwargs: Any) -> Any: ...


def safe_instantiate(config: Any, *args: Any, _expected_: type[Any] | None = None, **kwargs: Any) -> Any:
    """Build what `config` describes: call its `_target_` with its other keys, nested targets first.

    `args` and `kwargs` come from code: they are passed on as they are and win over the configuration's.
    `_args_`, `_partial_` and `_recursive_` work as in Hydra; `_convert_` may only be `all`, as values are plain data.
    With `_expected_` the outermost target must give that type. Raises UserError with every refused target.
    """
    tree = _plain(config)
    if not isinstance(tree, dict) or TARGET not in tree:
        raise UserError(Problem(key=TARGET, what="there is no _target_ to build"))
    allowed = installed_allow_list()
    nodes = list(_target_nodes(tree, ""))
    raise_all([problem for path, node in nodes for problem in _node_problems(node, path, allowed)])
    builder = _Builder({node[TARGET]: _resolve(node[TARGET], _join(path, TARGET), allowed) for path, node in nodes})
    target = builder.targets[tree[TARGET]]
    if _expected_ is not None and inspect.isclass(target):
        _checked_class(target, _expected_, tree[TARGET], TARGET)
    result = builder.build(tree, args, kwargs)
    if _expected_ is not None and not isinstance(result, (_expected_, functools.partial)):
        raise UserError(
            Problem(key=TARGET, what=f"{tree[TARGET]} gave a {type(result).__name__}, expected a {_expected_.__name__}")
        )
    return result


@dataclass(frozen=True)
class _Builder:
    """Builds nodes out of targets that were judged and resolved before."""

    targets: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def build(self, node: dict[str, Any], args: tuple[Any, ...] = (), extra: Mapping[str, Any] | None = None) -> Any:
        recursive = node.get("_recursive_", True)
        own = {name: value for name, value in node.items() if name not in _RESERVED}
        values = {name: self.value(value) if recursive else value for name, value in own.items()}
        positional = args or tuple(self.value(item) if recursive else item for item in node.get("_args_", []))
        values |= extra or {}
        target = self.targets[node[TARGET]]
        if node.get("_partial_", False):
            return functools.partial(target, *positional, **values)
        return target(*positional, **values)

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        if TARGET in value:
            return self.build(value)
        return {name: self.value(item) for name, item in value.items()}


def _plain(value: Any) -> Any:
    """Copy to dicts and lists; the containers of OmegaConf resolve their interpolations on the way."""
    if isinstance(value, Mapping):
        return {str(name): _plain(value[name]) for name in value}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return value


def _target_nodes(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Find every node with a `_target_`, also where `_recursive_: false` leaves it unbuilt."""
    if isinstance(value, dict):
        if TARGET in value:
            yield path, value
        for name, item in value.items():
            yield from _target_nodes(item, _join(path, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _target_nodes(item, f"{path}[{index}]")


def _node_problems(node: dict[str, Any], path: str, allowed: AllowList) -> list[Problem]:
    checks = (
        ("_partial_", isinstance(node.get("_partial_", False), bool), "expects true or false"),
        ("_recursive_", isinstance(node.get("_recursive_", True), bool), "expects true or false"),
        ("_args_", isinstance(node.get("_args_", []), list), "expects a list"),
        ("_convert_", node.get("_convert_", "all") == "all", "may only be all: targets receive plain data"),
    )
    wrong = [Problem(key=_join(path, name), what=what) for name, good, what in checks if not good]
    return _name_problems(node[TARGET], _join(path, TARGET), allowed) + wrong


def _name_problems(name: object, key: str, allowed: AllowList) -> list[Problem]:
    """Judge a target by its name alone; imports nothing."""
    if not isinstance(name, str):
        return [Problem(key=key, what=f"expects a dotted path to a class, not {name!r}")]
    parts = name.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return [Problem(key=key, what=f"{name!r} is not a dotted path such as my_package.module.MyClass")]
    if not allowed.allows(name):
        return [_refusal(name, key, allowed)]
    if private := [part for part in parts if part.startswith("_")]:
        return [Problem(key=key, what=f"{name} is refused: {private[0]} is a private name")]
    return []


def _refusal(name: str, key: str, allowed: AllowList) -> Problem:
    package = name.partition(".")[0]
    what = f"{name} is refused: {package} is not a package that a configuration may name"
    for reason in allowed.refused:
        what += f"\n    not counted: {reason}"
    if package in _SHORT_NAMES:
        return Problem(key=key, what=what, hint=f"write {OWN_PACKAGE}.{name}")
    # The standard library declares nothing: what is needed of it must be wrapped in a package of one's own.
    owner = "my_package" if package in sys.stdlib_module_names else package
    declaration = f'[project.entry-points."{ENTRY_POINT_GROUP}"]\n{owner} = "{owner}"'
    hint = f"to allow a package of yours, put these two lines in its pyproject.toml and install it:\n{declaration}"
    return Problem(key=key, what=what, hint=hint)


def _resolve(name: str, key: str, allowed: AllowList) -> Callable[..., Any]:
    """Import the module of an allowed name and take the class or function in it; refuses what it only imported."""
    module, rest = _import_longest(name, key)
    found: Any = module
    for depth, part in enumerate(rest, start=1):
        here = ".".join([module.__name__, *rest[:depth]])
        if part not in dir(found):
            raise UserError(_absent(found, part, name, key))
        found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
        if not inspect.isclass(found) and not inspect.isfunction(found):
            raise UserError(Problem(key=key, what=f"{name} is refused: {here} is neither a class nor a function"))
        if not allowed.allows(found.__module__):
            origin = f"{found.__module__}.{found.__qualname__}"
            raise UserError(
                Problem(key=key, what=f"{name} is refused: it is {origin}, defined outside the allowed packages")
            )
    if isinstance(found, ModuleType):
        raise UserError(Problem(key=key, what=f"{name} is a module, not a class in one"))
    return cast(Callable[..., Any], found)


def _import_longest(name: str, key: str) -> tuple[ModuleType, list[str]]:
    """Import as much of a dotted name as is modules; return the last module and the names left."""
    parts = name.split(".")
    module = _import(parts[0], name, key)
    for depth in range(1, len(parts)):
        child = ".".join(parts[: depth + 1])
        if not hasattr(module, "__path__") or importlib.util.find_spec(child) is None:
            return module, parts[depth:]
        module = _import(child, name, key)
    return module, []


def _import(module: str, name: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module:
            raise UserError(Problem(key=key, what=f"{name}: there is no module {module}")) from None
        raise HostError(
            Problem(key=key, what=f"{name} needs the module {missing}, which is not installed", hint=_deps_hint())
        ) from error


def _deps_hint() -> str:
    return "task=deps shows what is missing and how to install it"


def _absent(owner: Any, part: str, name: str, key: str) -> Problem:
    public = [member for member in dir(owner) if not member.startswith("_")]
    if isinstance(owner, ModuleType):
        public += [child.name for child in pkgutil.iter_modules(getattr(owner, "__path__", []))]
    near = did_you_mean(part, public)
    return Problem(key=key, what=f"{name}: {owner.__name__} has no {part}", hint=near)


def _checked_class(found: type[Any], expected: type[T], path: str, key: str) -> type[T]:
    if issubclass(found, expected):
        return found
    raise UserError(
        Problem(
            key=key,
            what=f"{path} is not a {expected.__name__}",
            hint=f"it must be a {expected.__module__}.{expected.__qualname__}",
        )
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
