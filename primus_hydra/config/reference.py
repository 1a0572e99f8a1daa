"""The reference page of all keys, generated from the schema: `python -m primus_hydra.config.reference`."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from primus_hydra.config.build import defaults_of, hints_of
from primus_hydra.config.schema import REQUIRED, JobConfig, KeyInfo, info_of

_INTRO = """\
# Reference: every key

Generated from the schema by `python -m primus_hydra.config.reference`; do not edit. A key is set as `node.key=value` on
the command line or under its node in YAML. "required" means that a group's choice (or you) must set it.
"""


def reference_page() -> str:
    """Return the page as Markdown."""
    return _INTRO + "".join(_section(path, schema, doc) for path, schema, doc in _nodes(JobConfig, "", ""))


def type_name(kind: Any) -> str:
    """Return a type as a person would write it."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(type_name(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is list:
        return f"list of {type_name(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return f"keys with {type_name(get_args(kind)[1])}"
    names = {int: "int", float: "float", bool: "bool", str: "text", type(None): "null"}
    return names.get(kind, "any value")


def _nodes(schema: type[Any], path: str, doc: str) -> Iterator[tuple[str, type[Any], str]]:
    yield path, schema, doc
    for field in dataclasses.fields(schema):
        kind = hints_of(schema)[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _nodes(typing.cast(type[Any], kind), f"{path}.{field.name}".lstrip("."), info_of(field).doc)


def _section(path: str, schema: type[Any], doc: str) -> str:
    rows = "".join(_rows(path, schema))
    if not rows:
        return ""
    title = f"`{path}`" if path else "Top level"
    return f"\n## {title}\n\n{doc}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}".replace(
        "\n\n\n\n", "\n\n"
    )


def _rows(path: str, schema: type[Any]) -> Iterator[str]:
    defaults = defaults_of(schema)
    for field in dataclasses.fields(schema):
        kind, info = hints_of(schema)[field.name], info_of(field)
        if not dataclasses.is_dataclass(kind):
            name = f"{path}.{field.name}".lstrip(".")
            default = "required" if field.default is REQUIRED else f"`{_plain(defaults[field.name])}`"
            yield f"| `{name}` | {type_name(kind)} | {default} | {info.doc}{_limits(info)} |\n"


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value).replace("'", "")


def _limits(info: KeyInfo) -> str:
    bounds = ((info.ge, ">="), (info.gt, ">"), (info.le, "<="), (info.lt, "<"))
    words = [f"{sign} {bound:g}" for bound, sign in bounds if bound is not None]
    words += [f"in {info.unit}"] if info.unit else []
    return f" ({', '.join(words)})" if words else ""


if __name__ == "__main__":
    print(reference_page(), end="")
