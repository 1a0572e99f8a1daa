"""`task=patches`: every registered patch of the chosen backend, whether it would apply here, and why it exists.

Decides as a run would, from installed metadata, without importing torch. A condition that needs the backend's own
objects cannot be asked before there is a run; such a patch is listed as `decided in the run`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from primus_hydra.config.composed import Composed
from primus_hydra.config.instantiate import load_target
from primus_hydra.config.schema import JobConfig, key
from primus_hydra.errors import ExitCode, HostError, raise_all
from primus_hydra.host.packages import checkout_commit, installed_commit, installed_version
from primus_hydra.patching import (
    PHASES,
    REGISTRY,
    Decision,
    Patch,
    PatchContext,
    Registry,
    Selection,
    decide,
    load_patches,
)
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.tasks.contract import Task

Status = Literal["would apply", "skipped", "failed", "decided in the run"]
_NARROWEST_COLUMNS = 100


@dataclass(frozen=True, kw_only=True)
class PatchRow:
    """One patch as it is listed; `versions` are alternatives, empty for every version."""

    id: str
    backend: str
    phase: str
    priority: int
    versions: tuple[str, ...]
    tags: tuple[str, ...]
    on_error: str
    status: Status
    reason: str
    why: str


def patch_rows(context: PatchContext, selection: Selection, registry: Registry = REGISTRY) -> list[PatchRow]:
    """Decide on every patch of the backend, each in its own phase; raises UserError for an unknown patch id."""
    patches = sorted(registry.patches(context.backend), key=_phase_order)
    raise_all(selection.problems(patch.id for patch in patches))
    return [_row(patch, _decide_in_own_phase(patch, context, selection)) for patch in patches]


def context_of(job: JobConfig, environment: Mapping[str, str]) -> PatchContext:
    """Find the versions that a run of this job would see."""
    version, commit = _backend_version(job, environment)
    return PatchContext(
        job=job,
        backend=job.backend.name,
        backend_version=version,
        backend_commit=commit,
        torch_version=installed_version("torch"),
        stage=job.module,
    )


class Patches(Task):
    """List the patches of the chosen backend."""

    name: ClassVar[str] = "patches"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=patches`."""

        format: Literal["text", "json"] = key("text", "A table to read, or JSON for programs.")

    options: Options

    def run(self, composed: Composed) -> int:
        """Print the list."""
        job = composed.job
        load_patches(job.backend.name)
        context = context_of(job, os.environ)
        rows = patch_rows(context, Selection.of(job.patches, os.environ))
        if self.options.format == "json":
            print(json.dumps({**asdict(context.installed), "patches": [asdict(row) for row in rows]}, indent=2))
        else:
            _print_table(rows, context)
        return ExitCode.DONE


def _backend_version(job: JobConfig, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Version and commit: from the metadata of an installed backend, from the adapter for a checkout."""
    name = job.backend.name
    chosen = job.backend.path or environment.get("BACKEND_PATH")
    if not chosen and (version := installed_version(name)) is not None:
        return version, installed_commit(name)
    adapter = load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]
    try:
        path = adapter.setup_backend_path()
        return adapter.detect_backend_version(), checkout_commit(path) if path else None
    except HostError:
        if chosen:
            raise
        return None, None


def _phase_order(patch: Patch) -> int:
    return -1 if patch.phase == "*" else PHASES.index(patch.phase)


def _decide_in_own_phase(patch: Patch, context: PatchContext, selection: Selection) -> Decision:
    phase = "before_import" if patch.phase == "*" else patch.phase
    return decide(patch, replace(context, phase=phase), selection)


def _row(patch: Patch, decision: Decision) -> PatchRow:
    return PatchRow(
        id=patch.id,
        backend=", ".join(patch.backends),
        phase=patch.phase,
        priority=patch.priority,
        versions=tuple(str(rule) for rule in patch.versions),
        tags=patch.tags,
        on_error=patch.on_error,
        status=_status(patch, decision),
        reason=decision.reason,
        why=patch.why,
    )


def _status(patch: Patch, decision: Decision) -> Status:
    if decision.error is not None:
        # Later phases offer the backend's objects to a condition; here they are None and it may trip over that.
        return "failed" if patch.phase in ("before_import", "convert") else "decided in the run"
    return "would apply" if decision.applies else "skipped"


def _print_table(rows: Sequence[PatchRow], context: PatchContext) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, _NARROWEST_COLUMNS))
    absent = "not installed"
    installed = f"{context.backend} {context.backend_version or absent}, torch {context.torch_version or absent}"
    if not rows:
        console.print(f"No patch is registered for {installed}.", highlight=False)
        return
    table = Table("patch", "status", "reason, and why it exists", title=installed, show_lines=True)
    for row in rows:
        versions = " or ".join(row.versions) or "every version"
        patch = f"{row.id}\n{row.phase}, priority {row.priority}\n{versions}"
        # Text objects, so that rich does not read [words] in them as markup.
        table.add_row(Text(patch), Text(row.status), Text(f"{row.reason}\n{row.why}"))
    console.print(table)
