"""What a tracker is told about a run: an identity that outlives attempts, its names, and its configuration."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.config.build import to_tree
from primus_hydra.config.schema import JobConfig
from primus_hydra.run.atomic import write_text
from primus_hydra.run.paths import RunPaths

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class RunLabel:
    """One run as trackers know it; `resume_from` is the step of the checkpoint that this attempt goes on from."""

    run_id: str
    name: str
    group: str | None
    user: str | None
    folder: Path
    config: dict[str, Scalar]
    resume_from: int | None


def label_of(job: JobConfig, paths: RunPaths, resume_from: int | None) -> RunLabel:
    """Describe the run; its identity is made at the first attempt and kept in the run directory."""
    return RunLabel(
        run_id=_identity(paths.trackers / "run_id"),
        name=job.run.name or paths.root.name,
        group=job.run.group,
        user=job.run.user,
        folder=paths.trackers,
        config=flat_config(job),
        resume_from=resume_from,
    )


def flat_config(job: JobConfig) -> dict[str, Scalar]:
    """Return the resolved configuration by dotted key; `env` stays out, because people keep tokens there."""
    tree = to_tree(job)
    return {key: value for name, node in tree.items() if name != "env" for key, value in _leaves(name, node)}


def _leaves(prefix: str, node: object) -> list[tuple[str, Scalar]]:
    if isinstance(node, dict) and node:
        return [leaf for name, child in node.items() for leaf in _leaves(f"{prefix}.{name}", child)]
    if isinstance(node, (dict, list)):
        return [(prefix, json.dumps(node, ensure_ascii=False))]
    return [(prefix, node if isinstance(node, Scalar) else str(node))]


def _identity(path: Path) -> str:
    # Random, not a hash of the run's name: two people with the same configuration must not share a run on a server.
    if not path.exists():
        write_text(path, uuid.uuid4().hex[:16] + "\n")
    return path.read_text(encoding="utf-8").strip()
