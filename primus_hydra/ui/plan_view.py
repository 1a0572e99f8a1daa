"""What `task=plan` shows, as plain data: the text, the Markdown and the JSON are made of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primus_hydra.ui.plan_view_projection import ProjectionPart


@dataclass(frozen=True, kw_only=True)
class ValueLine:
    """One leaf of the configuration, and where its value came from."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One environment variable and why it has this value."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RankLine:
    """One rank: its command, the variables that it does not share with all others, and its CPUs if it is bound."""

    rank: int
    node: int
    argv: tuple[str, ...]
    environment: tuple[Variable, ...]
    cpus: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """The run and where it stands (`new`, `resume`, `restart`, `finished`, `refused`); `step` is where it goes on."""

    name: str
    directory: str
    standing: str
    attempt: int
    step: int | None
    steps: int


@dataclass(frozen=True, kw_only=True)
class LayoutPart:
    """Ranks and batches; `tokens_per_step` counts all ranks."""

    nodes: int
    ranks_per_node: int
    world_size: int
    tp: int
    pp: int
    cp: int
    ep: int
    dp_shard: int
    dp_replicate: int
    micro_batch_size: int
    microbatches: int
    global_batch_size: int
    seq_length: int
    tokens_per_step: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """The model and its size; None where the vocabulary is not known yet."""

    name: str
    vocab_size: int | None
    parameters: int | None
    active_parameters: int | None


@dataclass(frozen=True, kw_only=True)
class BackendPart:
    """The backend of this machine; the version is None where it is not installed."""

    name: str
    version: str | None
    commit: str | None
    platform: str


@dataclass(frozen=True, kw_only=True)
class LaunchPart:
    """What starts. `argv` is the one process that the launcher starts: `how` is `agent`, `rank` or `joined`.

    `binding` says why ranks are bound to CPUs, or why not.
    """

    how: str
    binding: str
    argv: tuple[str, ...]
    environment: tuple[Variable, ...]
    ranks: tuple[RankLine, ...]


@dataclass(frozen=True, kw_only=True)
class SubmissionPart:
    """What is given to Slurm: the whole script, and srun with its options and the command of a node's task in it."""

    script: str
    srun: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PatchLine:
    """One registered patch, and what a run would decide on it."""

    id: str
    phase: str
    status: str
    reason: str
    why: str


@dataclass(frozen=True, kw_only=True)
class HookLine:
    """One hook: when it runs, its name, what it runs, and for how long at most."""

    phase: str
    name: str
    what: str
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class NoteLine:
    """Something worth knowing that does not make the plan fail: what, about which key, and how to mend it."""

    what: str
    key: str | None = None
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlanView:
    """One plan. `point` are the swept overrides, empty outside a sweep; `shown` says which values are listed."""

    point: tuple[str, ...]
    run: RunPart
    model: ModelPart
    backend: BackendPart
    layout: LayoutPart
    shown: str
    values: tuple[ValueLine, ...]
    launch: LaunchPart
    patches: tuple[PatchLine, ...]
    notes: tuple[NoteLine, ...]
    submission: SubmissionPart | None = None
    hooks: tuple[HookLine, ...] = ()
    projection: ProjectionPart | None = None
