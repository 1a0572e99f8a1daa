"""An experiment file of ours as text: choices first, then the keys, each with the names that it comes from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from primus_hydra.migrate.given import tree_of
from primus_hydra.migrate.ledger import Setting

_ORDER: Final = ("backend", "model", "data", "tokenizer", "platform")
_SECTIONS: Final = (
    *("run", "model", "training", "optimizer", "lr_schedule", "precision", "recompute", "compile", "parallel"),
    *("init_from", "data", "tokenizer", "checkpoint", "validation", "backend", "metrics", "tracker", "profiler"),
    *("launch", "env"),
)
_WIDTH: Final = 120


def experiment_text(title: str, choices: Mapping[str, str], settings: Mapping[str, Setting]) -> str:
    """Return the text of an experiment file."""
    lines = [
        "# @package _global_",
        f"# Migrated from {title} by task=migrate; a comment names the key that a value had.",
    ]
    if choices:
        lines.append("defaults:")
        names = sorted(choices, key=lambda group: _ORDER.index(group) if group in _ORDER else len(_ORDER))
        lines += [f"  - override /{group}: {choices[group]}" for group in names]
    tree = tree_of({key: settings[key] for key in sorted(settings, key=_place)})
    return "\n".join([*lines, *_lines(tree, 0)]) + "\n"


def _place(key: str) -> tuple[int, str]:
    section = key.partition(".")[0]
    return (_SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS), section)


def _lines(tree: Mapping[str, Any], depth: int) -> Iterator[str]:
    for name, value in tree.items():
        head = f"{'  ' * depth}{_scalar(name)}:"
        if isinstance(value, dict):
            yield head
            yield from _lines(value, depth + 1)
        else:
            line = f"{head} {_value(value)}"
            comment = _comment(value)
            yield f"{line} # {comment}" if comment and len(line) + len(comment) + 3 <= _WIDTH else line


def _value(setting: Setting) -> str:
    return _scalar(setting.text if setting.text is not None else setting.value)


def _comment(setting: Setting) -> str:
    names = ", ".join(setting.names[:3])
    return names if setting.explicit else f"{names}: the default there"


def _scalar(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return _number(value)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").strip()


def _number(value: float) -> str:
    """Return a float as people write it: 3.0e-4, not 0.00029999999999999997 nor 3e-04."""
    text = repr(value)
    if "e" not in text:
        return text
    digits, _, power = text.partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}e{int(power)}"
