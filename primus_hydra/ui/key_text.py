"""How a key, a node or a group is explained in a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from primus_hydra.config.key_table import KeyRow, NodeRow
from primus_hydra.config.options import Option

_WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class Current:
    """The value of a key in the composed job, and where it came from."""

    value: str
    source: str


def key_lines(row: KeyRow, current: Current | None) -> Iterator[str]:
    """Explain one key in full."""
    yield row.key
    yield f"  {row.doc}"
    yield f"  type:     {row.type}"
    if row.limits:
        yield f"  limits:   {row.limits}"
    yield f"  default:  {row.default}"
    if current is not None:
        yield f"  here:     {current.value}    from {current.source}"


def node_lines(node: NodeRow, below: Sequence[NodeRow], current: dict[str, Current]) -> Iterator[str]:
    """Explain a node: its doc, then one line per key with its present value; nodes below it by name."""
    yield f"{node.node or 'keys outside every node'}{f': {node.doc}' if node.node else ''}"
    yield ""
    for row in node.rows:
        here = current.get(row.key)
        value = f" = {_short(here.value)}" if here else ""
        yield f"  {row.key}{value}"
        limits = f"; {row.limits}" if row.limits else ""
        yield from _wrapped(f"{row.doc} ({row.type}{limits}; default {_short(row.default)})")
    for child in below:
        yield f"  {child.node}.*"
        yield from _wrapped(child.doc)


def options_lines(group: str, options: Sequence[Option], chosen: str | None) -> Iterator[str]:
    """Explain a group: one line per option, the chosen one marked."""
    yield f"options of the group {group}{f' (here: {chosen})' if chosen else ''}"
    yield ""
    width = max(len(option.name) for option in options) + 2
    for option in options:
        head = f"  {group}={option.name:<{width}}"
        yield from textwrap.wrap(option.doc or "-", _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="      ", subsequent_indent="      ")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
