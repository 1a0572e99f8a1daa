"""Stand-ins for modules that a backend imports at its start and uses late or never: the import happens at first use.

Only for names that are used after the import has ended (called, instantiated, subclassed in functions, asked about by
isinstance). While the block lasts, importers get the stand-in; afterwards everybody gets the real module again. Refuses
nothing: a module that is not installed, or is here already, is left alone, and importers meet what they always met.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any


@contextlib.contextmanager
def imported_late(*names: str) -> Iterator[None]:
    """Offer stand-ins for these modules, by full name, to whatever is imported inside the block.

    Of a package, name every submodule that is imported; others are not found.
    """
    placed = {name: _StandIn(name) for name in names if name not in sys.modules and _is_installed(name)}
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name, stand_in in placed.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


@contextlib.contextmanager
def not_installed(*names: str) -> Iterator[None]:
    """Let these packages be missing for whatever is imported inside the block; one that is here already stays."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def compiled_late(torch: types.ModuleType) -> Iterator[None]:
    """Let `torch.compile` return functions that compile at their first call; a call of it imports the whole compiler.

    What was compiled so inside the block stays so afterwards; `torch` is the module, which is not imported here.
    """
    real = torch.compile
    torch.compile = functools.partial(_compile_at_first_call, real)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.compile = real  # type: ignore[attr-defined]


def _compile_at_first_call(
    real: Callable[..., Any], function: Callable[..., Any] | None = None, **options: Any
) -> Callable[..., Any]:
    if function is None:  # a decorator with options
        return functools.partial(_compile_at_first_call, real, **options)
    compiled = functools.cache(lambda: real(function, **options))

    @functools.wraps(function)
    def late(*args: Any, **kwargs: Any) -> Any:
        return compiled()(*args, **kwargs)

    return late


class _StandIn(types.ModuleType):
    """A module whose names are stand-ins for those of the real one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Whoever asks by find_spec whether the module is installed must hear that it is.
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> LateName:
        if name.startswith("__"):
            raise AttributeError(name)
        late = LateName(self.__name__, name)
        setattr(self, name, late)
        return late


class LateName:
    """One name of a module; every use of it but a look at a type annotation imports the module."""

    def __init__(self, module: str, name: str) -> None:
        self._late_path = (module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what the name stands for."""
        return self._late_value()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._late_value(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._late_value())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._late_value())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (self._late_value(),)

    def __or__(self, other: object) -> Any:
        return self

    __ror__ = __or__

    def _late_value(self) -> Any:
        module, name = self._late_path
        found = importlib.import_module(module)
        # `import a.b as b` asks a for b before anything has imported it.
        return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")


def _is_installed(name: str) -> bool:
    # The parent says whether a submodule exists only by being imported; the package being there is enough.
    return importlib.util.find_spec(name.partition(".")[0]) is not None
