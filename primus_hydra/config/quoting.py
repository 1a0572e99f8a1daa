"""Quote a text for Hydra's command-line grammar, and nothing more: no second grammar lives here."""

from __future__ import annotations

import re

_BACKSLASHES_BEFORE_QUOTE = re.compile(r"(\\*)('|$)")
_WHOLLY_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_PLAIN_ITEMS = re.compile(r"[^'\"()\[\]{}\\$]*", re.DOTALL)
_PLAIN_CHOICE = re.compile(r"choice\(([^'\"()\[\]{}\\$]*)\)", re.DOTALL)
_SWEEP = re.compile(r"(choice|range|interval|glob|shuffle|sort)\(|.*,", re.DOTALL)


def quote(text: str) -> str:
    """Return the Hydra quoted string whose value is exactly `text`.

    In Hydra's grammar a backslash is special only in a run that ends at a quote; each of those is doubled.
    """
    escaped = _BACKSLASHES_BEFORE_QUOTE.sub(lambda m: m.group(1) * 2 + ("\\'" if m.group(2) else ""), text)
    return f"'{escaped}'"


def is_wholly_quoted(value: str) -> bool:
    """Whether one pair of quotes holds the whole value."""
    return _WHOLLY_QUOTED.fullmatch(value) is not None


def spell_text(value: str, *, nullable: bool, listable: bool, multirun: bool) -> str:
    """Spell the value of a text key for Hydra, so that the text arrives as typed.

    Hydra keeps its own meaning of a value wholly in quotes, of `${...}`, of null where None is allowed, of a list where
    a list is allowed, and of commas and sweep functions under --multirun; the items of a plain list or choice are
    taken as typed.
    """
    if is_wholly_quoted(value) or (nullable and value == "null"):
        return value
    if listable and value.startswith("[") and value.endswith("]"):
        return spell_list(value)
    if multirun and _SWEEP.match(value):
        choice = _PLAIN_CHOICE.fullmatch(value)
        inner = choice.group(1) if choice else value
        return _items(inner, nullable=nullable) if _PLAIN_ITEMS.fullmatch(inner) else value
    return quote(value)


def spell_list(value: str) -> str:
    """Spell a list of text for Hydra: the items of a plain one arrive as typed, any other keeps Hydra's meaning."""
    inner = value[1:-1]
    is_plain = value.startswith("[") and value.endswith("]") and _PLAIN_ITEMS.fullmatch(inner)
    return f"[{_items(inner, nullable=False)}]" if is_plain else value


def _items(inner: str, *, nullable: bool) -> str:
    items = [item.strip() for item in inner.split(",")] if inner.strip() else []
    return ",".join(item if nullable and item == "null" else quote(item) for item in items)
