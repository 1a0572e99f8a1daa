"""What a hook is told: where it stands, and how the ranks ended once they have.

Scripts find it in their environment under the names below, functions also as their argument `hook`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Skip(Exception):
    """Raised by a hook's function that has nothing to do; the text is shown."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the ranks ended: `finished`, `saved`, `interrupted` or `failed`, the command's exit code, the last step."""

    status: str
    exit_code: int
    step: int


@dataclass(frozen=True, kw_only=True)
class HookContext:
    """Where a hook stands; `node` counts from 0. `outcome` is known to post_train hooks only."""

    phase: str
    name: str
    run_dir: Path
    attempt: int
    node: int = 0
    nodes: int = 1
    outcome: Outcome | None = None

    def variables(self) -> dict[str, str]:
        """Return this as environment variables."""
        told = {
            "PRIMUS_RUN_DIR": str(self.run_dir),
            "PRIMUS_ATTEMPT": str(self.attempt),
            "PRIMUS_HOOK_PHASE": self.phase,
            "PRIMUS_HOOK_NAME": self.name,
            "PRIMUS_HOOK_NODE": str(self.node),
            "PRIMUS_HOOK_NODES": str(self.nodes),
        }
        if self.outcome is None:
            return told
        return told | {
            "PRIMUS_HOOK_STATUS": self.outcome.status,
            "PRIMUS_HOOK_EXIT_CODE": str(self.outcome.exit_code),
            "PRIMUS_HOOK_STEP": str(self.outcome.step),
        }

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> HookContext:
        """Read what `variables` gave; raises KeyError outside a hook."""
        status = environ.get("PRIMUS_HOOK_STATUS")
        outcome = None
        if status is not None:
            exit_code, step = int(environ["PRIMUS_HOOK_EXIT_CODE"]), int(environ["PRIMUS_HOOK_STEP"])
            outcome = Outcome(status=status, exit_code=exit_code, step=step)
        return cls(
            phase=environ["PRIMUS_HOOK_PHASE"],
            name=environ["PRIMUS_HOOK_NAME"],
            run_dir=Path(environ["PRIMUS_RUN_DIR"]),
            attempt=int(environ["PRIMUS_ATTEMPT"]),
            node=int(environ["PRIMUS_HOOK_NODE"]),
            nodes=int(environ["PRIMUS_HOOK_NODES"]),
            outcome=outcome,
        )
