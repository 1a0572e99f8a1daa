"""What a run keeps of the command that began it: the words that were typed, and where each value came from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from primus_hydra.config.composed import Composed
from primus_hydra.config.provenance import Source
from primus_hydra.run.saved import RunCommand


def command_of(composed: Composed) -> RunCommand:
    """Return the command of this process."""
    return RunCommand(
        argv=tuple(sys.orig_argv),
        overrides=tuple(composed.overrides),
        swept=tuple(composed.swept),
        folder=str(Path.cwd()),
    )


def plain_sources(provenance: Mapping[str, object]) -> dict[str, object]:
    """Return for each leaf what set it: kind, text, and file and line where it was a file."""
    return {leaf: asdict(source) if isinstance(source, Source) else str(source) for leaf, source in provenance.items()}
