"""`hooks.json` of an attempt: what became of each hook, and what those of each phase set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from primus_hydra.hooks.values import HookValues
from primus_hydra.run.atomic import read_json, write_json

Result = Literal["done", "skipped", "failed", "timed out", "stopped"]


@dataclass(frozen=True, kw_only=True)
class HookEnd:
    """What became of one hook. `code` is its exit code as a shell tells it; `set` are the variables that it set."""

    phase: str
    name: str
    result: Result
    seconds: float
    code: int = 0
    message: str = ""
    set: tuple[str, ...] = ()
    tail: tuple[str, ...] = field(default=(), repr=False)

    @property
    def good(self) -> bool:
        """Whether the next one may go on."""
        return self.result in ("done", "skipped")

    def describe(self) -> str:
        """Say it in a sentence's part."""
        more = f": {self.message}" if self.message else ""
        return f"{self.phase} hook {self.name}: {self.result}{more} ({self.seconds:.1f} s)"


def write_record(path: Path, ends: Sequence[HookEnd], values: Mapping[str, HookValues]) -> None:
    """Replace the record; `values` are what the hooks of each phase have set."""
    said = {phase: newly.to_json() for phase, newly in values.items()}
    write_json(path, {"hooks": [asdict(end) for end in ends], "values": said})


def read_values(path: Path, phase: str) -> HookValues:
    """Return what the hooks of a phase have set by a record; nothing where there is no such thing."""
    said = (read_json(path) or {}).get("values")
    found = said.get(phase) if isinstance(said, Mapping) else None
    return HookValues.from_json(found) if isinstance(found, Mapping) else HookValues()
