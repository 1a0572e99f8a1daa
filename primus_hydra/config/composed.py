"""The outcome of composing the configuration once: what every task receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from primus_hydra.config.schema import JobConfig

Launcher = Literal["basic", "submitit"]
"""Where a job starts: here, or on the nodes that Slurm gives it. No part of the run's identity."""


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A composed, resolved and valid configuration.

    `tree` is the plain data behind `job`, `choices` names the option taken in each group, `overrides` are as typed,
    `swept` those among them that a sweep varies, `sweep` the name of that sweep where the job gives none, and
    `provenance` tells for each leaf (dotted) where its value came from; it may be empty. `notes` say what was found out
    about the machine. `launcher` says where the job starts: from this process, or through a scheduler;
    `platform_detected`: the platform is what this machine was found to be.
    """

    job: JobConfig
    tree: dict[str, Any]
    choices: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    swept: Sequence[str] = ()
    sweep: str | None = None
    provenance: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()
    launcher: Launcher = "basic"
    platform_detected: bool = False
