"""Each override of a command line, read alone: what it sets, whether it may, and its spelling for Hydra.

Hydra stops at the first bad override and reads text as numbers (a git SHA becomes infinity). Here every override is
looked up in the groups and the schema, text for text keys is quoted as typed, and all problems are returned at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra.core.override_parser.types import Override as HydraOverride
from omegaconf.errors import GrammarParseError
from omegaconf.grammar_parser import parse as parse_interpolation

from primus_hydra.config.files import MISSING_MARK
from primus_hydra.config.grammar import GrammarError, of_text, parse
from primus_hydra.config.groups import Groups
from primus_hydra.config.keys import KeyFacts, all_keys, facts_of
from primus_hydra.config.launchers import LAUNCHER_GROUP, launcher_problem
from primus_hydra.config.quoting import spell_list, spell_text
from primus_hydra.config.suggest import key_hint, nearest
from primus_hydra.errors import Problem

_SHAPE = re.compile(r"(?P<sign>\+{0,2}|~)(?P<key>[^=\s+~]+?)(?:=(?P<value>.*))?", re.DOTALL)
_LONGEST_SHOWN = 200
EXPERIMENT = "experiment"
"""The one group that may be left open."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """One override as typed, as Hydra gets it, and as Hydra's grammar reads it. `position` counts from 1."""

    position: int
    typed: str
    key: str
    value: str | None
    for_hydra: str
    parsed: HydraOverride = field(compare=False, repr=False)
    is_group: bool = False

    @property
    def where(self) -> str:
        """Name the override in a message."""
        return place_of(self.position, self.typed)


def place_of(position: int, typed: str) -> str:
    """Name the place of an override, a very long one shortened."""
    shown = typed if len(typed) <= _LONGEST_SHOWN else f"{typed[: _LONGEST_SHOWN - 3]}..."
    return f"override {position}: {shown}"


def read_overrides(typed: Sequence[str], groups: Groups, *, multirun: bool) -> tuple[list[Override], list[Problem]]:
    """Read every override; return those that are sound, and a Problem for each that is not."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for position, text in enumerate(typed, start=1):
        result = _read(position, text, groups, multirun)
        if isinstance(result, Override):
            overrides.append(result)
        else:
            where = place_of(position, text)
            problems.append(Problem(what=result.what, key=result.key, hint=result.hint, where=where))
    return overrides, problems


def _read(position: int, text: str, groups: Groups, multirun: bool) -> Override | Problem:
    match = _SHAPE.fullmatch(text)
    if match is None or (match["value"] is None and match["sign"] != "~"):
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
        return Problem(what=f"{shown!r} is not of the form key=value", hint=_shape_hint(text, groups))
    sign, key, value = match["sign"], match["key"], match["value"]
    spelled = _spell(sign, key, value, groups, multirun)
    if isinstance(spelled, Problem):
        return spelled
    try:
        parsed = of_text(spelled) or parse(spelled)
    except GrammarError as error:
        return Problem(key=key, what=f"the value cannot be read: {error}", hint=_grammar_hint(value or ""))
    if parsed.is_sweep_override() and not multirun:
        return _several(key, value or "", facts_of(key))
    if "${" in (value or "") and not _is_interpolation(value or ""):
        hint = "close it with }: ${KEY} or ${env:NAME,DEFAULT}; for the text itself write \\${"
        return Problem(key=key, what="the interpolation cannot be read", hint=hint)
    is_group = groups.has(key.split("@")[0])
    return Override(
        position=position, typed=text, key=key, value=value, for_hydra=spelled, parsed=parsed, is_group=is_group
    )


def _is_interpolation(value: str) -> bool:
    try:
        parse_interpolation(value)
    except GrammarParseError:
        return False
    return True


def _spell(sign: str, key: str, value: str | None, groups: Groups, multirun: bool) -> str | Problem:
    """Return the override as Hydra should read it, or what is wrong with its key or option."""
    if key == LAUNCHER_GROUP and (problem := launcher_problem(value)):
        return problem
    if key.startswith(("hydra.", "hydra/")):
        return f"{sign}{key}" + ("" if value is None else f"={value}")
    facts = facts_of(key)
    if facts.kind in ("leaf", "free") and not groups.has(key):
        return _spell_key(sign, key, value, facts, multirun)
    group = key.split("@")[0]
    if groups.has(group):
        return _spell_group(sign, key, group, value, groups, multirun)
    if facts.kind == "node":
        return Problem(
            key=key, what="is a group of keys and takes no value", hint=f"its keys: {', '.join(_below(key))}"
        )
    return Problem(key=key, what="there is no such key or group", hint=_unknown_hint(key, value, groups))


def _unknown_hint(key: str, value: str | None, groups: Groups) -> str:
    chosen = [name for name in nearest(key, groups.names()) if value in groups.options(name)]
    if chosen:
        return f"did you mean {chosen[0]}={value}?"
    parent = key.rpartition(".")[0]
    if facts_of(parent).kind == "leaf":
        return f"{parent} has no keys below it: write {parent}=VALUE"
    return key_hint(key, all_keys(), groups.names()) or "task=help lists every key"


def _spell_key(sign: str, key: str, value: str | None, facts: KeyFacts, multirun: bool) -> str | Problem:
    if value is None or (sign == "~" and facts.kind == "leaf"):
        hint = f"set {key}=null" if facts.nullable else f"leave it out, or set {key}=VALUE"
        return Problem(key=key, what="cannot be removed: every key has a value", hint=hint)
    plus = "++" if facts.kind == "free" else ""
    return f"{plus}{key}={spell_value(value, facts, multirun=multirun)}"


def spell_value(value: str, facts: KeyFacts, *, multirun: bool) -> str:
    """Spell a value for Hydra: text for a text key as typed, everything else as it is."""
    if facts.takes_texts:
        return spell_list(value)
    if not facts.takes_text:
        return value
    if value == "???":
        return MISSING_MARK
    return spell_text(value, nullable=facts.nullable, listable=facts.listable, multirun=multirun)


def _spell_group(sign: str, key: str, group: str, value: str | None, groups: Groups, multirun: bool) -> str | Problem:
    if sign == "~" or value is None:
        return f"~{key}" + ("" if value is None else f"={value}")
    if value == "null" and group == EXPERIMENT:
        return f"~{key}"
    is_list = value.startswith("[")
    sweep = "," in value or "(" in value
    if sweep and not is_list and not multirun:
        return _several(group, value, None)
    options = groups.options(group)
    chosen = value.strip("[]").split(",") if is_list or sweep else [value]
    wrong = [option for option in chosen if "(" not in option and option.strip() not in (*options, "")]
    if wrong:
        return _no_such_option(group, wrong[0].strip(), options, groups)
    keep_plus = sign if "@" in key and sign == "+" else ""
    return f"{keep_plus}{key}={value}"


def _no_such_option(group: str, option: str, options: list[str], groups: Groups) -> Problem:
    near = nearest(option, options)
    hint = f"did you mean {group}={near[0]}?" if near else f"options: {', '.join(options)}"
    unseen = groups.unseen(group, option)
    if unseen is not None:
        hint = f"{unseen} exists, but only files that end in .yaml are read: rename it"
    elif option.endswith((".yaml", ".yml")) and option.rpartition(".")[0] in options:
        hint = f"leave the ending out: {group}={option.rpartition('.')[0]}"
    return Problem(key=group, what=f"there is no option {option!r}", hint=hint)


def _several(key: str, value: str, facts: KeyFacts | None) -> Problem:
    if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", value):
        return Problem(key=key, what="a number takes no commas", hint=f"write {key}={value.replace(',', '')}")
    ways = ["run one job for each value: add --multirun (-m)"]
    if facts is not None and facts.listable:
        ways.append(f"or give a list: {key}=[{value}]")
    return Problem(key=key, what="takes one value, not several", hint="; ".join(ways))


def _below(node: str) -> list[str]:
    return [key for key in all_keys() if key.startswith(f"{node}.")][:12]


def _shape_hint(text: str, groups: Groups) -> str:
    name = text.strip("+~")
    if groups.has(name):
        return f"choose one: {name}={'|'.join(groups.options(name)[:8])}"
    if name in all_keys():
        return f"give it a value: {name}=VALUE"
    key, _, value = text.partition("=")
    if value and key.strip() != key and facts_of(key.strip()).kind != "unknown":
        return f"write it without spaces around =: {key.strip()}={value.strip()}"
    if key.startswith("--"):
        return f"keys take no dashes: {key.lstrip('-')}={value or 'VALUE'}"
    return "write key=value, for example training.steps=200"


def _grammar_hint(value: str) -> str:
    if value.count("[") != value.count("]") or value.count("{") != value.count("}"):
        return "close what was opened: [ ] or { }"
    return "put the value in single quotes, and the whole override in double quotes"
