"""The numbers of this rank, as torchrun names them in the environment. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RankNumbers:
    """Who this process is among the ranks of the job; `restart` counts restarts of all ranks inside the attempt."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    restart: int = 0


def rank_numbers(environ: Mapping[str, str]) -> RankNumbers:
    """Read the numbers; raises KeyError if this process is not a rank."""
    world_size = int(environ["WORLD_SIZE"])
    return RankNumbers(
        rank=int(environ["RANK"]),
        local_rank=int(environ["LOCAL_RANK"]),
        world_size=world_size,
        local_world_size=int(environ.get("LOCAL_WORLD_SIZE", world_size)),
        restart=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )
