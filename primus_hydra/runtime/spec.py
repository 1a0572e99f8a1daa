"""What one attempt's ranks are given: a small JSON file beside the resolved configuration.

Everything here was decided once, by the process that composed the configuration; a rank decides nothing again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from primus_hydra.config.layout import Layout
from primus_hydra.data.prepared import PreparedData
from primus_hydra.run.atomic import write_json
from primus_hydra.run.paths import AttemptPaths, RunPaths
from primus_hydra.runtime.pulse import pulse_folder
from primus_hydra.runtime.reserved import NODE_VARIABLE as NODE_VARIABLE
from primus_hydra.runtime.reserved import this_node as this_node
from primus_hydra.runtime.stages import Stages


@dataclass(frozen=True, kw_only=True)
class AttemptSpec:
    """One attempt: where it runs, over how many ranks, from which data and checkpoint.

    `data` is None only in a plan that prepared nothing. `joined` says that an outer torchrun or srun started the
    processes; `start` is how the agent starts ranks, `backoff_s` its pause before a restart without progress.
    `cpus` are those of each local rank, in the kernel's notation; without them the kernel places the ranks.
    `environment` is what every rank exports again before it imports a library.
    """

    run_dir: str
    attempt: int
    layout: Layout
    data: PreparedData | None
    resume_from: int | None
    backend_version: str
    backend_commit: str | None = None
    max_restarts: int = 0
    backoff_s: float = 1.0
    stop_grace_s: float = 120.0
    joined: bool = False
    start: Literal["fork_server", "subprocess"] = "subprocess"
    cpus: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> RunPaths:
        """Paths of the run."""
        return RunPaths(Path(self.run_dir))

    @property
    def attempt_paths(self) -> AttemptPaths:
        """Paths of this attempt."""
        return self.paths.attempt(self.attempt)

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.layout.world_size

    def pulse(self, rank: int) -> Path:
        """Return where a rank of this node beats."""
        return self.pulses(self.node_of(rank)) / f"rank-{rank}"

    def pulses(self, node: int) -> Path:
        """Return where all ranks of a node beat."""
        return pulse_folder(self.run_dir, self.attempt, node)

    def node_of(self, rank: int) -> int:
        """Return on which node a rank runs."""
        return rank // self.layout.ranks_per_node

    def stages(self, who: str, restart: int = 0) -> Stages:
        """Return where a process of this node notes the stages of a start."""
        return Stages(self.pulses(this_node()), who, restart)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AttemptSpec:
        """Read what `to_json` wrote."""
        prepared = PreparedData.from_json(data["data"]) if data["data"] is not None else None
        return cls(**{**data, "layout": Layout(**data["layout"]), "data": prepared, "cpus": tuple(data["cpus"])})

    def write(self) -> Path:
        """Write the spec where the ranks of the attempt look for it; return that path."""
        path = self.attempt_paths.spec
        write_json(path, self.to_json())
        return path

    @classmethod
    def read(cls, path: Path) -> AttemptSpec:
        """Read a spec file; raises OSError or ValueError if it is none."""
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
