"""The registry of patches, and the decorator that fills it.

A patch is refused when it is registered, not when it runs: an id that is taken, a phase that does not exist, a version
rule that cannot be read, a missing `why`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from primus_hydra.config.suggest import did_you_mean
from primus_hydra.patching.context import PHASES, PatchContext, Phase
from primus_hydra.patching.versions import VersionRule, parse_rules

PatchFunction = Callable[[PatchContext], None]
Condition = Callable[[PatchContext], bool]
OnError = Literal["fail", "warn"]
F = TypeVar("F", bound=PatchFunction)

# Ids are matched by globs and listed with commas in PRIMUS_PATCHES, so they hold neither.
_ID = re.compile(r"[a-z0-9_]+([.-][a-z0-9_]+)*")
_RESERVED_IDS = ("all", "none")


class PatchDefinitionError(ValueError):
    """A patch is declared wrongly; its author must mend it."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A registered change to a backend.

    `backends` are names, or '*' for every one; `versions` are alternatives; `when` says in words what `condition` asks;
    `why` says what goes wrong without the patch.
    """

    id: str
    backends: tuple[str, ...]
    phase: Phase | Literal["*"]
    versions: tuple[VersionRule, ...]
    condition: Condition | None
    when: str
    priority: int
    tags: tuple[str, ...]
    on_error: OnError
    why: str
    function: PatchFunction

    def is_for(self, backend: str) -> bool:
        """Whether the patch concerns this backend."""
        return not {"*", backend}.isdisjoint(self.backends)

    def runs_in(self, phase: Phase) -> bool:
        """Whether the patch is considered in this phase."""
        return self.phase in ("*", phase)


class Registry:
    """Patches by id, in the order in which they were registered."""

    def __init__(self) -> None:
        self._patches: dict[str, Patch] = {}

    def register(
        self,
        id: str,
        *,
        why: str,
        backend: str | Sequence[str],
        phase: Phase | Literal["*"],
        versions: str | Sequence[str] | None = None,
        condition: Condition | None = None,
        when: str = "",
        priority: int = 50,
        tags: Sequence[str] = (),
        on_error: OnError = "fail",
    ) -> Callable[[F], F]:
        """Register the decorated function as a patch; it is called with the `PatchContext` when it applies.

        `backend` is one name, or several where backends share the code that the patch changes.
        `when` may be left out where the condition is a named function: its docstring or name is taken.
        Raises PatchDefinitionError with everything that is wrong with the declaration.
        """
        backends = (backend,) if isinstance(backend, str) else tuple(backend)
        faults = _faults(id, backends, phase, on_error, why, tags) + self._taken(id)
        rules: tuple[VersionRule, ...] = ()
        sentence = ""
        try:
            rules = parse_rules(versions, backend=backends)
            sentence = _sentence_of(condition, when)
        except ValueError as error:
            faults.append(str(error))
        if faults:
            raise PatchDefinitionError(f"patch {id!r}: " + "; ".join(faults))

        def add(function: F) -> F:
            self._patches[id] = Patch(
                id=id,
                backends=backends,
                phase=phase,
                versions=rules,
                condition=condition,
                when=sentence,
                priority=priority,
                tags=tuple(tags),
                on_error=on_error,
                why=why.strip(),
                function=function,
            )
            return function

        return add

    def patches(self, backend: str, phase: Phase | None = None) -> list[Patch]:
        """Patches of a backend, of one phase or all: lower priority first, ties as registered."""
        chosen = [
            patch
            for patch in self._patches.values()
            if patch.is_for(backend) and (phase is None or patch.runs_in(phase))
        ]
        return sorted(chosen, key=lambda patch: patch.priority)

    def _taken(self, id: str) -> list[str]:
        other = self._patches.get(id)
        return [f"the id is taken by {other.function.__module__}.{other.function.__qualname__}"] if other else []


def _faults(id: str, backends: Sequence[str], phase: str, on_error: str, why: str, tags: Sequence[str]) -> list[str]:
    near = did_you_mean(phase, PHASES)
    checks = (
        (not _ID.fullmatch(id) or id in _RESERVED_IDS, "the id must be lower-case words joined by dots or dashes"),
        (not backends or not all(backends), "the backend is empty; '*' is every backend"),
        (phase not in (*PHASES, "*"), f"there is no phase {phase!r}; {near or 'phases: ' + ', '.join(PHASES)}"),
        (on_error not in get_args(OnError), f"on_error is 'fail' or 'warn', not {on_error!r}"),
        (not why.strip(), "`why` is empty; say what goes wrong without the patch"),
        (isinstance(tags, str), "`tags` is a list of words, not one text"),
    )
    return [text for wrong, text in checks if wrong]


def _sentence_of(condition: Condition | None, when: str) -> str:
    if condition is None:
        if when:
            raise ValueError("`when` describes a condition, but there is none")
        return ""
    documented = (getattr(condition, "__doc__", None) or "").strip().partition("\n")[0]
    name = getattr(condition, "__name__", "<lambda>")
    sentence = when or documented or ("" if name == "<lambda>" else name.replace("_", " ").strip())
    sentence = sentence.strip().rstrip(".")
    if not sentence:
        raise ValueError("the condition needs `when`, a sentence that says what it asks")
    return sentence


REGISTRY = Registry()
register_patch = REGISTRY.register
