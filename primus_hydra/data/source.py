"""A part of a corpus that is read from its start: one file, or one shard of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from primus_hydra.data.problem_log import ProblemLog


@dataclass(frozen=True, kw_only=True)
class Source:
    """`read(log)` yields the documents in a fixed order and notes what is wrong in `log`."""

    name: str
    read: Callable[[ProblemLog], Iterator[str]]
