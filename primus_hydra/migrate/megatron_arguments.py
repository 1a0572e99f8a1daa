"""Megatron's argument lists as a recipe: `--num-layers 32 ...`, alone, in a file, or in the middle of a shell script.

Shell is not run: comments and line ends are taken away, the words are split, and everything before the first argument
that Megatron knows is the launcher's. Variables of the script that it assigns as plain text are put in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from primus_hydra.errors import Problem, UserError
from primus_hydra.migrate.generic import typed
from primus_hydra.migrate.given import Given
from primus_hydra.migrate.recipe import Recipe
from primus_hydra.native.vocabulary import Vocabulary

_ASSIGNED: Final = re.compile(
    r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(?:\"([^\"$`]*)\"|'([^']*)'|([^\s\"'$`()]*))\s*(?:#.*)?$"
)
_USED: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")
_OPENED: Final = re.compile(r"^\s*(?:export\s+|readonly\s+)?\w+=[(\"]")
LAUNCHER_WORDS: Final = frozenset(
    {
        *("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port"),
        *("rdzv_id", "rdzv_backend", "rdzv_endpoint"),
    }
)
"""Arguments of torchrun, which scripts give beside Megatron's."""


@dataclass
class _Found:
    keys: dict[str, Given] = field(default_factory=dict)
    around: dict[str, Given] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    started: bool = False


def read_arguments(
    text: str, vocabulary: Vocabulary, *, title: str, environment: Mapping[str, str], framework: str = "megatron"
) -> Recipe:
    """Read a text of arguments; raises UserError with every variable and word that cannot be read."""
    variables = {**environment, **_variables(text)}
    found = _Found()
    for words, line in _lines(text):
        _take(words, f"{title}:{line}", vocabulary, variables, found)
    if found.problems:
        raise UserError(*found.problems)
    if not found.keys:
        what = f"{title} holds no argument of {vocabulary.source}, as --num-layers 32"
        raise UserError(Problem(key="task.path", what=what))
    return Recipe(kind="megatron", title=title, framework=framework, keys=found.keys, around=found.around)


def _variables(text: str) -> dict[str, str]:
    """Return what the script assigns as plain text."""
    found = {}
    for line in text.splitlines():
        match = _ASSIGNED.match(line)
        if match:
            found[match[1]] = next((part for part in match.groups()[1:] if part is not None), "")
    return found


def _lines(text: str) -> list[tuple[list[str], int]]:
    """Return the words of each command with the line where it begins; an argument list may go over lines."""
    result: list[tuple[list[str], int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if _ASSIGNED.match(line):
            continue
        try:
            words = shlex.split(_unwrapped(line), comments=True)
        except ValueError:
            continue  # text of the shell that no argument stands in
        if words:
            result.append((words, number))
    return result


def _unwrapped(line: str) -> str:
    """Return a line without the end of line's backslash, and without the opening or the end of a list over lines."""
    line = line.rstrip().removesuffix("\\").strip()
    if line.count('"') % 2:
        line = _OPENED.sub("", line) if _OPENED.match(line) else line.removesuffix('"')
    elif _OPENED.match(line) and "(" in line:
        line = _OPENED.sub("", line)
    return line.removesuffix(")") if line.endswith(")") and "$(" not in line and "(" not in line else line


def _take(
    words: Sequence[str], where: str, vocabulary: Vocabulary, variables: Mapping[str, str], found: _Found
) -> None:
    rest = list(words)
    while rest:
        word, equals, attached = rest.pop(0).partition("=")
        if not word.startswith("--"):
            continue
        name, switch = _argument(word, vocabulary)
        key = name or word.lstrip("-").replace("-", "_")
        if name is None and not found.started and key not in LAUNCHER_WORDS:
            continue  # an argument of the launcher, before Megatron's
        found.started = found.started or name is not None
        texts = [attached] if equals else []
        while not equals and rest and not rest[0].startswith("--"):
            texts.append(rest.pop(0))
        if key not in LAUNCHER_WORDS or name is not None:
            texts = [_put_in(text, variables, where, word, found) for text in texts]
        known = vocabulary.keys.get(name) if name else None
        value = switch if switch is not None and not texts else _value(texts, known.node if known else {"type": "any"})
        (found.around if key in LAUNCHER_WORDS else found.keys)[key] = Given(value=value, where=where)


def _argument(word: str, vocabulary: Vocabulary) -> tuple[str | None, Any]:
    if word in vocabulary.flags:
        return vocabulary.flags[word]
    name = word.lstrip("-").replace("-", "_")
    return (name, None) if name in vocabulary.keys else (None, None)


def _value(texts: Sequence[str], node: Mapping[str, Any]) -> Any:
    if not texts:
        return True
    values = [_cast(typed(text, dict(node)) if len(texts) == 1 else text) for text in texts]
    return values[0] if len(values) == 1 else values


def _cast(value: Any) -> Any:
    """Return a number for the text of one where the argument may be a number or text."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value


def _put_in(text: str, variables: Mapping[str, str], where: str, word: str, found: _Found) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if name in variables:
            return variables[name]
        if match[2] is not None:
            return match[2]
        what = f"takes ${name}, which neither the script sets as plain text nor the environment has"
        found.problems.append(Problem(key=word, what=what, where=where, hint=f"export {name}=..., and try again"))
        return ""

    return _USED.sub(value, text)
