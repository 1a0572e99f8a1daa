"""Overrides of Primus's command line: `key=value`, `--key=value`, `--key value`, and a bare `--flag`, which is true.

A value is cast as there: a float only where it has a dot, so `1e-5` stays text. Python's literals of lists, tuples,
dicts and texts are read by Python's own reader of literals; nothing is ever evaluated.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from primus_hydra.errors import Problem, UserError
from primus_hydra.migrate.given import Given, Tree, merged, tree_of

_WHOLE: Final = re.compile(r"[-+]?\d+")
_FLOAT: Final = re.compile(r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False}
WHERE: Final = "command line"


def words_of(arguments: str | Sequence[str]) -> list[str]:
    """Return the words of a command line, given as text or as a list of words; raises UserError."""
    if not isinstance(arguments, str):
        return [str(word) for word in arguments]
    try:
        return shlex.split(arguments)
    except ValueError as error:
        what = f"cannot be split into words: {str(error).lower()}"
        raise UserError(Problem(key="task.arguments", what=what, hint="close the quote")) from None


def read_overrides(words: Sequence[str]) -> Tree:
    """Return the values that the words give, later over earlier; raises UserError with every word that gives none."""
    tree: Tree = {}
    problems = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not re.fullmatch(r"[\w.]+", name) or not (equals or word.startswith("--")):
            problems.append(Problem(key="task.arguments", what=f"{word!r} is not of the form key=value or --key value"))
            continue
        if not equals:
            text = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        tree = merged(tree, tree_of({name: Given(value=cast_word(text), where=WHERE)}))
    if problems:
        raise UserError(*problems)
    return tree


def cast_word(text: str) -> Any:
    """Return what a value on the command line means."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text == "None":
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _literal(text) if text[:1] in "[{('\"" else text


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return list(value) if isinstance(value, tuple) else value
