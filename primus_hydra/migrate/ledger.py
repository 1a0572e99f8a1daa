"""The account of a migration: what every key of the recipe became, and the keys and choices that follow for us.

Each given key gets exactly one entry. A setting is explicit where the recipe says one of the keys that it comes from;
the others follow from the other launcher's own defaults, and are written only where ours say something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from primus_hydra.config.build import Mismatch, convert
from primus_hydra.config.keys import facts_of
from primus_hydra.migrate.given import Given
from primus_hydra.migrate.substitution import in_our_words, is_one_variable
from primus_hydra.native.vocabulary import Vocabulary

Fate = Literal["translated", "passed", "default", "changed", "dead", "unsupported", "unknown"]
"""`translated` into keys of ours, `passed` to the backend, the other launcher's own `default` (nothing to write); then
what is reported with a reason: `changed` meaning, `dead` (nothing read it), `unsupported` here, `unknown`."""
FATES: tuple[Fate, ...] = ("translated", "passed", "default", "changed", "dead", "unsupported", "unknown")
_STRENGTH: tuple[Fate, ...] = ("default", "translated", "passed", "unknown", "dead", "unsupported", "changed")
"""Which of two fates of one key is told: the one that a reader must know of."""
REPORTED: tuple[Fate, ...] = ("changed", "dead", "unsupported", "unknown")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What became of one key of the recipe; `targets` are our settings that it led to."""

    name: str
    value: Any
    where: str
    fate: Fate
    targets: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value for one of our keys; `text` is what to write where the value comes from a variable."""

    value: Any
    names: tuple[str, ...]
    explicit: bool
    text: str | None = None


class Ledger:
    """Gathers settings, choices, entries and notes while the keys of a recipe are gone through."""

    def __init__(
        self, given: Mapping[str, Given], vocabulary: Vocabulary | None = None, *, complete: bool = True
    ) -> None:
        self.given = dict(given)
        self.vocabulary = vocabulary
        self.complete = complete
        """Whether what is not given has the other launcher's default; not so where its presets are missing."""
        self.settings: dict[str, Setting] = {}
        self.choices: dict[str, str] = {}
        self.entries: dict[str, Entry] = {}
        self.notes: list[str] = []

    def has(self, *names: str) -> bool:
        """Whether the recipe gives any of the names."""
        return any(name in self.given for name in names)

    def get(self, name: str) -> Any:
        """Return the value of a name: the recipe's, else its reader's default, None where neither is known."""
        if name in self.given:
            return self.given[name].value
        if not self.complete:
            return None
        known = self.vocabulary.find(name) if self.vocabulary else None
        return known.default if known else None

    def number(self, name: str) -> float | None:
        """Return a value as a number, also where YAML took it for text; None for anything else."""
        value = self.get(name)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return None
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def known(self, *names: str) -> bool:
        """Whether it is known what the names meant: they are given, or their defaults counted."""
        return self.complete or self.has(*names)

    def say(self, key: str, value: Any, *names: str, changed: str | None = None) -> None:
        """Set one of our keys from the names; what they became is noted, `changed` says what is not the same.

        A value that the key cannot take is reported instead, and nothing is set.
        """
        if not self.known(*names):
            return
        fits = convert(facts_of(key).type, value)
        if isinstance(fits, Mismatch):
            self.tell("unsupported", f"{key} {fits.what}", *names)
            return
        self.settings[key] = self._setting(key, value, fits, names)
        for name in names:
            self._enter(name, "changed" if changed else "translated", (f"{key}={_shown(fits)}",), changed)

    def put(self, key: str, value: Any) -> None:
        """Set one of our keys that no key of the recipe stands for."""
        self.settings[key] = Setting(value=value, names=(), explicit=True)

    def choose(self, group: str, option: str, *names: str, changed: str | None = None) -> None:
        """Choose an option of a group, because of the names."""
        if self.known(*names):
            self.choices[group] = option
            for name in names:
                self._enter(name, "changed" if changed else "translated", (f"{group}={option}",), changed)

    def pass_on(self, name: str, place: str, value: Any) -> None:
        """Hand a value to the backend, at a place below `backend.config`."""
        key = f"backend.config.{place}"
        self.settings[key] = self._setting(key, value, value, (name,))
        self._enter(name, "passed", (f"{key}={_shown(value)}",), None)

    def tell(self, fate: Fate, reason: str | None, *names: str) -> None:
        """Say what became of names that lead to no setting of ours."""
        for name in names:
            self._enter(name, fate, (), reason)

    def open(self) -> list[str]:
        """Return the names that nobody has accounted for yet."""
        return [name for name in self.given if name not in self.entries]

    def _enter(self, name: str, fate: Fate, targets: tuple[str, ...], reason: str | None) -> None:
        """Enter a name; one that leads to several settings has one entry, with the fate that must be told."""
        if name not in self.given:
            return
        given, before = self.given[name], self.entries.get(name)
        if before is not None:
            targets = tuple(dict.fromkeys((*before.targets, *targets)))
            reason = "; ".join(dict.fromkeys(text for text in (before.reason, reason) if text)) or None
            fate = max(before.fate, fate, key=_STRENGTH.index)
        self.entries[name] = Entry(
            name=name, value=given.value, where=given.where, fate=fate, targets=targets, reason=reason
        )

    def _setting(self, key: str, value: Any, fits: Any, names: tuple[str, ...]) -> Setting:
        """Return the setting, with the interpolation to write where one name gives the very value by a variable."""
        given = tuple(name for name in names if name in self.given)
        text = None
        if len(given) == 1:
            only = self.given[given[0]]
            same = only.value == value and type(only.value) is type(value)
            # Text that is put together stays text here, which only a key of text can take.
            if only.text is not None and same and (facts_of(key).takes_text or is_one_variable(only.text)):
                text = in_our_words(only.text)
        return Setting(value=fits, names=given or names, explicit=bool(given), text=text)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value)
