"""What a plan shows of a job that is not there yet: rules, memory per stage, speed; plain data like the rest of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RuleLine:
    """One rule, and whether it holds; `nearest` says which values would."""

    key: str
    what: str
    holds: bool
    reason: str
    nearest: str | None = None


@dataclass(frozen=True, kw_only=True)
class StageLine:
    """Memory of one pipeline stage's fullest rank, in GiB by part."""

    stage: int
    layers: int
    parts: Mapping[str, float]
    total: float
    in_flight: int


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    """Memory of all stages; `capacity` (GiB) and `fits` are None where the platform's memory is not known.

    `changes` are overrides after which it fits, with the peak that each leads to.
    """

    stages: tuple[StageLine, ...]
    peak: float
    capacity: float | None
    fits: bool | None
    changes: tuple[tuple[str, float], ...]
    sources: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SpeedPart:
    """The projected speed: `where` are parts of a step, `sources` say where its numbers come from."""

    tokens_per_s_per_gpu: float
    tokens_per_s: float
    step_s: float
    mfu: float
    tflops: float
    tflops_all_pairs: float
    bubble: float
    where: Mapping[str, float]
    confidence: str
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProjectionPart:
    """All that is projected; `speed` is None where the platform states no rates."""

    rules: tuple[RuleLine, ...]
    memory: MemoryPart
    speed: SpeedPart | None
    seconds_in_all: float | None = None
