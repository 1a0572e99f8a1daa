"""The keys that need no rule: the backend's own tables say whose neutral key each is, or where its place is.

A value equal to what stands there anyway needs nothing. Everything that is left is reported with its reason.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from primus_hydra.config.keys import facts_of
from primus_hydra.config.suggest import nearest
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.native.describe import Node
from primus_hydra.native.vocabulary import NativeKey, Vocabulary

_OURS: Final = ("metrics.", "checkpoint.", "validation.", "tracker.", "model.", "profiler.", "data.", "tokenizer.")
"""Keys for which defaults of the other launcher are not taken over: a rule does, or they do not change the training."""


def account_for_same(ledger: Ledger, vocabulary: Vocabulary, same: Collection[str]) -> None:
    """Enter the names in `same` that no rule has taken: their value is that of the neutral key which owns them."""
    for name in ledger.open():
        known = vocabulary.find(name)
        if known is not None and known.owner and vocabulary.former.get(name, name) in same:
            _say_same(ledger, name, known.owner, typed(ledger.get(name), known.node))


def account_for_rest(ledger: Ledger, vocabulary: Vocabulary) -> None:
    """Enter every name that is left."""
    for name in ledger.open():
        known = vocabulary.find(name) or _section_of(name, vocabulary)
        if known is None:
            ledger.tell("unknown", _unknown(name, vocabulary), name)
        else:
            _enter(ledger, name, known)


def fill_defaults(ledger: Ledger, vocabulary: Vocabulary, same: Collection[str]) -> None:
    """Say what is not given but has a default there: the neutral keys of `same`, and places that begin otherwise."""
    if not ledger.complete:
        return
    given = {vocabulary.former.get(name, name) for name in ledger.given}
    for name, known in vocabulary.keys.items():
        if name in given or known.default is None:
            continue
        if known.owner and name in same and not known.owner.startswith(_OURS):
            ledger.say(known.owner, known.default, name)
        elif known.place and known.here is not None:
            ledger.pass_on(name, known.place, known.default)


def typed(value: Any, node: Node) -> Any:
    """Return the number behind a text where a key takes numbers and no text, as the other launcher's reader would."""
    kinds = {member["type"] for member in node.get("any_of", [node])}
    if isinstance(value, str) and not kinds & {"str", "any", "choice", "enum"} and kinds & {"int", "float"}:
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if "int" in kinds and number.is_integer() else number
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and "float" in kinds and "int" not in kinds else value


def _say_same(ledger: Ledger, name: str, owner: str, value: Any) -> None:
    if value is None and not facts_of(owner).nullable:
        ledger.tell("default", None, name)
    else:
        ledger.say(owner, value, name)


def _enter(ledger: Ledger, name: str, known: NativeKey) -> None:
    value = typed(ledger.get(name), known.node)
    off = value is False and known.default is None
    if (value == known.standing or off) and (known.here is None or known.place):
        ledger.tell("default", None, name)
    elif known.place:
        ledger.pass_on(name, known.place, known.spelled(value))
    elif known.owner:
        ledger.tell("unsupported", f"{known.owner} says this here, and has no word for this value", name)
    else:
        ledger.tell("unsupported", known.refused, name)


def _section_of(name: str, vocabulary: Vocabulary) -> NativeKey | None:
    """Return what is said of the whole section of a name."""
    return vocabulary.keys.get(f"{name.partition('.')[0]}.*")


def _unknown(name: str, vocabulary: Vocabulary) -> str:
    near = nearest(name, vocabulary.keys, cutoff=0.8)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{vocabulary.source} has no key of this name, and nothing is written for it{hint}"
