"""Applies the patches of one phase, in order, and records what became of each.

A patch that fails stops the run, unless it was registered with `on_error="warn"`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from primus_hydra.errors import PrimusError, raise_all
from primus_hydra.patching.context import PatchContext, Phase
from primus_hydra.patching.registry import REGISTRY, Patch, Registry
from primus_hydra.patching.selection import Selection, decide

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PatchRecord:
    """What became of one patch in one phase."""

    id: str
    phase: Phase
    status: Literal["applied", "skipped", "failed"]
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PatchRecord:
        """Read what `to_json` wrote."""
        return cls(**data)


class PatchError(RuntimeError):
    """A patch failed, and the run cannot do without it; `records` tells of the patches before it."""

    def __init__(self, patch: Patch, phase: Phase, reason: str, records: list[PatchRecord]) -> None:
        self.patch_id = patch.id
        self.records = records
        super().__init__(
            f"patch {patch.id!r} failed in phase {phase}: {reason}\n"
            f"    it exists because: {patch.why}\n"
            f"    to run without it: patches.disabled=[{patch.id}]"
        )


def run_patches(
    phase: Phase,
    context: PatchContext,
    *,
    selection: Selection | None = None,
    registry: Registry = REGISTRY,
) -> list[PatchRecord]:
    """Apply the patches of `phase` and return a record for each patch of that phase and backend.

    The phase of `context` is set to `phase`; the selection defaults to the job's `patches` and the environment.
    Raises UserError for a selection that names an unknown patch, PatchError for a patch that failed and must not,
    and a UserError or HostError of a patch as it is.
    """
    here = replace(context, phase=phase)
    chosen = selection or Selection.of(context.job.patches, os.environ)
    raise_all(chosen.problems(patch.id for patch in registry.patches(context.backend)))
    records: list[PatchRecord] = []
    for patch in registry.patches(context.backend, phase):
        records.append(_run_one(patch, here, chosen, records))
    return records


def expected_records(
    phase: Phase,
    context: PatchContext,
    *,
    selection: Selection | None = None,
    registry: Registry = REGISTRY,
) -> set[tuple[str, str]]:
    """Return (id, applied or skipped) of each patch of `phase` as `run_patches` would record it; nothing is applied."""
    here = replace(context, phase=phase)
    chosen = selection or Selection.of(context.job.patches, os.environ)
    decisions = ((patch.id, decide(patch, here, chosen)) for patch in registry.patches(context.backend, phase))
    return {(name, "applied" if decision.applies else "skipped") for name, decision in decisions}


def _run_one(patch: Patch, context: PatchContext, selection: Selection, before: list[PatchRecord]) -> PatchRecord:
    decision = decide(patch, context, selection)
    error = decision.error
    reason = decision.reason
    if decision.applies:
        try:
            patch.function(context)
        except Exception as raised:
            error, reason = raised, f"{type(raised).__name__}: {raised}"
    if error is not None:
        return _failed(patch, context.phase, reason, error, before)
    _LOG.info("patch %s %s: %s", patch.id, "applied" if decision.applies else "skipped", reason)
    status: Literal["applied", "skipped"] = "applied" if decision.applies else "skipped"
    return PatchRecord(id=patch.id, phase=context.phase, status=status, reason=reason)


def _failed(patch: Patch, phase: Phase, reason: str, error: Exception, before: list[PatchRecord]) -> PatchRecord:
    record = PatchRecord(id=patch.id, phase=phase, status="failed", reason=reason)
    if patch.on_error == "warn":
        _LOG.warning("patch %s failed and is left out: %s (%s)", patch.id, reason, patch.why, exc_info=error)
        return record
    if isinstance(error, PrimusError):
        error.add_note(f"raised by patch {patch.id!r}: {patch.why}")
        raise error
    raise PatchError(patch, phase, reason, [*before, record]) from error
