"""Write the data file of the installed torchtitan: `python -m primus_hydra.backends.torchtitan.schema.generate`.

Needs torch and torchtitan. The file lets the launcher check `backend.config` without either; a test proves it equal to
the classes it describes.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

from torchtitan.config.configurable import Configurable

from primus_hydra.backends.torchtitan.versions import Release, installed_version, release_for
from primus_hydra.native.describe import class_at, classes_below, describe_class, mentioned, name_of

_MORE_MODULES = ("torchtitan.hf_datasets.text_datasets", "torchtitan.components.checkpointer.torch_checkpointing")
"""Modules with implementations that can be chosen and that nothing else imports."""


def schema_of(config: Any) -> dict[str, Any]:
    """Describe the classes of a built configuration, and all classes that can take the place of one of them."""
    for module in _MORE_MODULES:
        _import_if_whole(module)
    placed = classes_below(config)
    classes: dict[str, Any] = {}
    todo: list[type[Any]] = list(placed.values())
    known = {name_of(cls): cls for cls in _configuration_classes()}
    while todo:
        cls = todo.pop()
        if name_of(cls) not in classes:
            info = classes[name_of(cls)] = describe_class(cls)
            named = {name for node in info["fields"].values() for name in mentioned(node)}
            bases = named | {name_of(cls)}
            todo += [other for other in known.values() if bases & {name_of(base) for base in other.__mro__}]
            todo += [_by_name(name, known) for name in named]
    return {
        "torchtitan": installed_version("torchtitan"),
        "placed": {path: name_of(cls) for path, cls in sorted(placed.items())},
        "classes": dict(sorted(classes.items())),
    }


def render(schema: dict[str, Any]) -> str:
    """Write a schema as the data file holds it."""
    return json.dumps(schema, indent=1, sort_keys=False) + "\n"


def path_of(release: Release) -> Path:
    """Return the data file of a release."""
    return Path(__file__).with_name(f"{release.name}.json")


def _configuration_classes() -> list[type[Any]]:
    found, todo = [], [Configurable.Config]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        # slots=True makes a second class; the first one stays behind without an owner.
        if cls.__module__.startswith("torchtitan.") and _is_reachable(cls):
            found.append(cls)
    return found


def _is_reachable(cls: type[Any]) -> bool:
    found: Any = importlib.import_module(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


def _by_name(name: str, known: dict[str, type[Any]]) -> type[Any]:
    found = known.get(name) or class_at(name)
    if not dataclasses.is_dataclass(found):
        raise TypeError(f"{name} is not a dataclass")
    return found


def _import_if_whole(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"left out {module}: {error}")


def main() -> None:
    """Write the data file."""
    from primus_hydra.backends.torchtitan.schema.example import example_config

    version = installed_version("torchtitan")
    if version is None:
        raise SystemExit("torchtitan is not installed")
    path = path_of(release_for(version))
    path.write_text(render(schema_of(example_config())), encoding="utf-8")
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
