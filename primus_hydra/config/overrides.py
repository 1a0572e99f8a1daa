"""Each override of a command line, read alone: what it sets, whether it may, and its spelling for Hydra.

Hydra stops at the first bad override and reads text as numbers (a git SHA becomes infinity). Here every override is
looked up in the groups and the schema, text for text keys is quoted as typed, and all problems are returned at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from primus_hydra.config.groups import Groups
from primus_hydra.config.keys import KeyFacts, all_keys, facts_of
from primus_hydra.config.quoting import keeps_hydra_meaning, quote
from primus_hydra.config.suggest import nearest
from primus_hydra.errors import Problem

_SHAPE = re.compile(r"(?P<sign>\+{0,2}|~)(?P<key>[^=\s+~]+?)(?:=(?P<value>.*))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Override:
    """One override as typed, and as Hydra gets it. `position` counts from 1 on the command line."""

    position: int
    typed: str
    key: str
    value: str | None
    for_hydra: str
    is_group: bool = False

    @property
    def where(self) -> str:
        """Name the override in a message."""
        return f"override {self.position}: {self.typed if len(self.typed) <= 200 else self.typed[:197] + '...'}"


def read_overrides(typed: Sequence[str], groups: Groups, *, multirun: bool) -> tuple[list[Override], list[Problem]]:
    """Read every override; return those that are sound, and a Problem for each that is not."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for position, text in enumerate(typed, start=1):
        result = _read(position, text, groups, multirun)
        if isinstance(result, Override):
            overrides.append(result)
        else:
            problems.append(
                Problem(what=result.what, key=result.key, hint=result.hint, where=f"override {position}: {text}")
            )
    return overrides, problems


def _read(position: int, text: str, groups: Groups, multirun: bool) -> Override | Problem:
    match = _SHAPE.fullmatch(text)
    if match is None or (match["value"] is None and match["sign"] != "~"):
        return Problem(what=f"{text!r} is not of the form key=value", hint=_shape_hint(text, groups))
    sign, key, value = match["sign"], match["key"], match["value"]
    spelled = _spell(sign, key, value, groups, multirun)
    if isinstance(spelled, Problem):
        return spelled
    error = _grammar_error(spelled)
    if error:
        return Problem(
            key=key,
            what=f"Hydra cannot read the value: {error}",
            hint="put the value in single quotes inside double quotes",
        )
    is_group = groups.has(key.split("@")[0])
    return Override(position=position, typed=text, key=key, value=value, for_hydra=spelled, is_group=is_group)


def _spell(sign: str, key: str, value: str | None, groups: Groups, multirun: bool) -> str | Problem:
    """Return the override as Hydra should read it, or what is wrong with its key or option."""
    if key.startswith(("hydra.", "hydra/")):
        return f"{sign}{key}" + ("" if value is None else f"={value}")
    group = key.split("@")[0]
    if groups.has(group):
        return _spell_group(sign, key, group, value, groups, multirun)
    facts = facts_of(key)
    if facts.kind == "unknown":
        return _unknown(key, groups)
    if facts.kind == "node":
        return Problem(
            key=key, what="is a group of keys and takes no value", hint=f"its keys: {', '.join(_below(key))}"
        )
    if sign == "~" or value is None:
        return Problem(
            key=key, what="cannot be removed: every key of the schema exists", hint=f"set {key}=null or its default"
        )
    plus = "++" if facts.kind == "free" else ""
    return f"{plus}{key}={spell_value(value, facts, multirun=multirun)}"


def spell_value(value: str, facts: KeyFacts, *, multirun: bool) -> str:
    """Spell a value for Hydra: text for a text key as typed, everything else as it is."""
    if not facts.takes_text:
        return value
    if keeps_hydra_meaning(value, nullable=facts.nullable, multirun=multirun, listable=facts.listable):
        return value
    if multirun and _is_plain_choice(value):
        return ",".join(quote(choice) for choice in value.split(","))
    return quote(value)


def _is_plain_choice(value: str) -> bool:
    """Whether commas separate the choices of a sweep, with nothing that Hydra's grammar would have to read."""
    return "," in value and not set(value) & set("'\"()[]{}\\")


def _spell_group(sign: str, key: str, group: str, value: str | None, groups: Groups, multirun: bool) -> str | Problem:
    if sign == "~" or value is None:
        return f"~{key}" + ("" if value is None else f"={value}")
    sweep = multirun and ("," in value or "(" in value)
    options = groups.options(group)
    chosen = value.strip("[]").split(",") if value.startswith("[") or sweep else [value]
    wrong = [option for option in chosen if "(" not in option and option.strip() not in (*options, "null", "")]
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
    return Problem(key=group, what=f"there is no option {option!r}", hint=hint)


def _unknown(key: str, groups: Groups) -> Problem:
    leaf = key.rsplit(".", 1)[-1]
    names = [*all_keys(), *groups.names()]
    same_leaf = [name for name in all_keys() if name.rsplit(".", 1)[-1] == leaf]
    near = same_leaf[:3] or nearest(key, names, cutoff=0.75) or _near_leaves(leaf)
    hint = f"did you mean {' or '.join(near)}?" if near else "task=help lists every key"
    return Problem(key=key, what="there is no such key or group", hint=hint)


def _near_leaves(leaf: str) -> list[str]:
    leaves = {name.rsplit(".", 1)[-1]: name for name in all_keys()}
    return [leaves[name] for name in nearest(leaf, leaves, cutoff=0.75)]


def _below(node: str) -> list[str]:
    return [key for key in all_keys() if key.startswith(f"{node}.")][:12]


def _shape_hint(text: str, groups: Groups) -> str:
    if groups.has(text):
        return f"choose one: {text}={'|'.join(groups.options(text)[:8])}"
    return "write key=value, for example training.steps=200"


def _grammar_error(spelled: str) -> str | None:
    try:
        OverridesParser.create().parse_override(spelled)
    except HydraException as error:
        return str(error).splitlines()[0]
    return None
