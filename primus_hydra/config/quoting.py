"""Quote a text for Hydra's command-line grammar, and nothing more: no second grammar lives here."""

from __future__ import annotations

import re

_BACKSLASHES_BEFORE_QUOTE = re.compile(r"(\\*)('|$)")

_SWEEP = re.compile(r"^(choice|range|interval|glob|shuffle|sort)\(|,.*['\"()\[\]{}\\]|['\"()\[\]{}\\].*,")


def quote(text: str) -> str:
    """Return the Hydra quoted string whose value is exactly `text`.

    In Hydra's grammar a backslash is special only in a run that ends at a quote; each of those is doubled.
    """
    escaped = _BACKSLASHES_BEFORE_QUOTE.sub(lambda m: m.group(1) * 2 + ("\\'" if m.group(2) else ""), text)
    return f"'{escaped}'"


def keeps_hydra_meaning(value: str, *, nullable: bool, multirun: bool, listable: bool = False) -> bool:
    """Whether a value for a text key is left to Hydra's grammar instead of being taken as typed.

    These are: a value wholly in quotes, one with an interpolation, null where None is allowed, a list where a list is
    allowed, and commas or sweep functions under --multirun.
    """
    if "${" in value:
        return True
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return True
    if nullable and value == "null":
        return True
    if listable and value.startswith("[") and value.endswith("]"):
        return True
    return multirun and _SWEEP.search(value) is not None
