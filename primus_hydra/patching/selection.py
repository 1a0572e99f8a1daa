"""Whether a patch applies: what the user selected, the versions, and the patch's own condition.

`patches.enabled` and `patches.disabled` select by id or glob. The environment variable PRIMUS_PATCHES only narrows:
unset, empty or `all` changes nothing, `none` leaves none, a comma list of ids or globs leaves only those.
A pattern that fits no registered patch is refused, so that a mistyped id cannot pass unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from primus_hydra.config.schema import PatchesConfig
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import Problem
from primus_hydra.patching.context import PatchContext
from primus_hydra.patching.registry import Patch
from primus_hydra.patching.versions import any_match

ENVIRONMENT_NAME = "PRIMUS_PATCHES"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Ids or globs that the user chose; `only` comes from the environment, None where it says nothing."""

    enabled: tuple[str, ...] = ("*",)
    disabled: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    @classmethod
    def of(cls, config: PatchesConfig, environment: Mapping[str, str]) -> Selection:
        """Read the selection from the configuration and the environment."""
        return cls(
            enabled=tuple(config.enabled),
            disabled=tuple(config.disabled),
            only=_parse_environment(environment.get(ENVIRONMENT_NAME, "")),
        )

    def objection(self, patch_id: str) -> str | None:
        """Say why the user's choice leaves a patch out, or None if it does not."""
        if (pattern := _first_match(patch_id, self.disabled)) is not None:
            return f"patches.disabled has {pattern}"
        if _first_match(patch_id, self.enabled) is None:
            return "patches.enabled does not name it"
        if self.only is not None and _first_match(patch_id, self.only) is None:
            return f"{ENVIRONMENT_NAME} {'is none' if not self.only else 'does not name it'}"
        return None

    def problems(self, ids: Iterable[str]) -> list[Problem]:
        """Find the patterns that fit none of the registered ids."""
        known = list(ids)
        sources = (
            ("patches.enabled", self.enabled),
            ("patches.disabled", self.disabled),
            (ENVIRONMENT_NAME, self.only or ()),
        )
        return [
            _unknown_pattern(source, pattern, known)
            for source, patterns in sources
            for pattern in patterns
            if pattern != "*" and not any(fnmatchcase(name, pattern) for name in known)
        ]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether a patch applies and why; `error` is what its condition raised."""

    applies: bool
    reason: str
    error: Exception | None = None


def decide(patch: Patch, context: PatchContext, selection: Selection) -> Decision:
    """Decide on one patch in the phase of `context`; calls its condition last and never raises what that raises."""
    if not patch.is_for(context.backend):
        return _skip(f"it is for {', '.join(patch.backends)}, the backend is {context.backend}")
    if not patch.runs_in(context.phase):
        return _skip(f"it belongs to phase {patch.phase}, this is {context.phase}")
    if (objection := selection.objection(patch.id)) is not None:
        return _skip(objection)
    versions = any_match(patch.versions, context.installed)
    return _decide_condition(patch, context, versions.reason) if versions.holds else _skip(versions.reason)


def _decide_condition(patch: Patch, context: PatchContext, versions: str) -> Decision:
    if patch.condition is None:
        return Decision(applies=True, reason=versions)
    try:
        holds = bool(patch.condition(context))
    except Exception as error:
        reason = f"its condition ({patch.when}) failed: {type(error).__name__}: {error}"
        return Decision(applies=False, reason=reason, error=error)
    if not holds:
        return _skip(f"does not hold: {patch.when}")
    return Decision(applies=True, reason=f"{versions}; {patch.when}")


def _skip(reason: str) -> Decision:
    return Decision(applies=False, reason=reason)


def _parse_environment(text: str) -> tuple[str, ...] | None:
    names = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    if not names or names == ("all",):
        return None
    return () if names == ("none",) else names


def _first_match(patch_id: str, patterns: Iterable[str]) -> str | None:
    return next((pattern for pattern in patterns if fnmatchcase(patch_id, pattern)), None)


def _unknown_pattern(source: str, pattern: str, known: list[str]) -> Problem:
    listed = f"registered: {', '.join(known)}" if known else "no patch is registered for this backend"
    hint = did_you_mean(pattern, known) or listed
    return Problem(key=source, what=f"{pattern!r} matches no registered patch", hint=hint)
