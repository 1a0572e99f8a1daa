"""How the nodes of an attempt ended, each in its own words, and the one end that the job tells. Pure.

When a rank dies, all others fail with it: in a collective, or because their node was told to end. The cause is the node
that was lost, else the one whose rank died without a word, else the one whose rank failed first.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from primus_hydra.errors import ExitCode
from primus_hydra.launch.verdict import LaunchResult

_AS_KILLED = 128 + signal.SIGKILL
_GOOD = frozenset({int(ExitCode.DONE), int(ExitCode.REQUEUE), int(ExitCode.INTERRUPTED)})


@dataclass(frozen=True, kw_only=True)
class NodeEnd:
    """The end of one node's ranks; `followed` says that they were ended because of another node.

    `told` is the signal that its launcher got, `silent` a rank's death without a word, `lost` the node's own; `time` is
    when the cause was seen, in seconds since the epoch.
    """

    node: int
    exit_code: int
    message: str
    time: float
    silent: bool = False
    followed: bool = False
    lost: bool = False
    failed_rank: int | None = None
    log: str | None = None
    restarts: int = 0
    told: int | None = None

    @property
    def failed(self) -> bool:
        """Whether something went wrong on this very node."""
        return self.exit_code not in _GOOD and not self.followed

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def node_end(node: int, result: LaunchResult, *, now: float) -> NodeEnd:
    """Return what a node says of its ranks' end."""
    spoke = {outcome.rank: outcome for outcome in result.outcomes}.get(
        -1 if result.failed_rank is None else result.failed_rank
    )
    return NodeEnd(
        node=node,
        exit_code=int(result.exit_code),
        message=result.message,
        time=spoke.time if spoke is not None else now,
        silent=result.failed_rank is not None and spoke is None,
        followed=result.followed,
        failed_rank=result.failed_rank,
        log=None if result.log is None else str(result.log),
        restarts=result.restarts,
        told=result.signal,
    )


def lost_node(node: int, host: str, *, now: float) -> NodeEnd:
    """Return the end of a node that says nothing any more."""
    message = f"{host} (node {node} of the job) was lost: it crashed, its network broke, or its task was killed"
    return NodeEnd(node=node, exit_code=_AS_KILLED, message=message, time=now, lost=True)


def merge(own: LaunchResult, ends: Sequence[NodeEnd], hosts: Sequence[str]) -> LaunchResult:
    """Return the end of the whole attempt, told by the node that decides for all; `ends` has one for each node."""
    cause = _cause(ends)
    restarts = max(end.restarts for end in ends)
    told = next((end.told for end in ends if end.told is not None), None)
    if cause is None:
        return replace(own, restarts=restarts, signal=told)
    # What is told of a hang is of all nodes, whichever found it.
    of_this_node = cause.failed and not cause.lost and cause.exit_code != ExitCode.HANG
    place = f" (on {hosts[cause.node]})" if of_this_node else ""
    return replace(
        own,
        exit_code=cause.exit_code,
        message=cause.message + place,
        failed_rank=cause.failed_rank,
        log=None if cause.log is None else Path(cause.log),
        restarts=restarts,
        signal=told,
    )


def _cause(ends: Sequence[NodeEnd]) -> NodeEnd | None:
    """Return the end that decides, None where all ranks finished their work."""
    failed = [end for end in ends if end.lost] or [end for end in ends if end.failed]
    if failed:
        return min(failed, key=lambda end: (not end.silent, end.time))
    stopped = [end for end in ends if end.exit_code in (ExitCode.REQUEUE, ExitCode.INTERRUPTED)]
    followed = [end for end in ends if end.followed]
    return min([*followed, *stopped], key=lambda end: (not end.followed, end.node), default=None)


def read_end(data: Mapping[str, Any]) -> NodeEnd:
    """Read what `to_json` wrote; raises TypeError for anything else."""
    return NodeEnd(**data)
