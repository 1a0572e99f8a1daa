"""The attempts of a run, and what became of each: why it ended, after how many restarts, whether it hung.

The launcher notes the end of an attempt; where it could not (it was killed), what the ranks left behind is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.condition import Condition
from primus_hydra.run.goodput import read_attempts
from primus_hydra.run.paths import AttemptPaths, RunPaths

EndWord = Literal["saved", "finished", "failed", "interrupted"]
AttemptWord = Literal["saved", "finished", "failed", "interrupted", "goes on", "died"]


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, in the launcher's words; `time` is seconds since the epoch, `signal` what it was sent."""

    status: EndWord
    exit_code: int
    message: str
    step: int
    restarts: int
    time: float
    failed_rank: int | None = None
    signal: int | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """One attempt as far as it is known; `hang` describes the last hang in it, `exit_code` is the command's."""

    number: int
    word: AttemptWord
    cause: str
    exit_code: int | None = None
    step: int | None = None
    restarts: int = 0
    seconds: float | None = None
    hang: str | None = None


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Where a rank was at `time` (seconds since the epoch): its section, its last finished step, its silence."""

    rank: int
    node: str
    section: str
    step: int
    silent_s: float
    time: float


def write_end(path: Path, end: AttemptEnd) -> None:
    """Note the end of an attempt."""
    write_json(path, asdict(end))


def read_end(path: Path) -> AttemptEnd | None:
    """Return the end of an attempt; None where there is no note, or one of another program."""
    data = read_json(path)
    try:
        return None if data is None else _end_of(data)
    except (KeyError, TypeError, ValueError):
        return None


def attempt_records(paths: RunPaths, condition: Condition) -> list[AttemptRecord]:
    """Tell of every attempt, the first one first; `condition` says whether the newest goes on. Raises OSError."""
    return [_record(paths.attempt(number), number, condition) for number in paths.attempt_numbers()]


def restarts_of(paths: RunPaths) -> int:
    """Return the restarts of ranks in all attempts that were timed; raises OSError."""
    return sum(max(0, len(attempt.starts) - 1) for attempt in read_attempts(paths))


def rank_places(attempt: AttemptPaths) -> list[RankPlace]:
    """Return where each rank of an attempt was when its node last told; raises OSError."""
    found = [place for node in attempt.nodes() for place in _places(node)]
    return sorted(found, key=lambda place: place.rank)


def _record(attempt: AttemptPaths, number: int, condition: Condition) -> AttemptRecord:
    end = read_end(attempt.ended)
    began, ended, starts = _times(attempt)
    goes_on = number == condition.attempt and _is_at_work(condition, began)
    hang = (read_json(attempt.hang) or {}).get("what")
    word, cause, exit_code, step = _fate(attempt, number, condition, end, goes_on=goes_on)
    return AttemptRecord(
        number=number,
        word=word,
        cause=cause,
        exit_code=exit_code,
        step=step,
        restarts=end.restarts if end else max(0, starts - 1),
        seconds=None if began is None or ended is None else max(0.0, ended - began),
        hang=str(hang) if hang else None,
    )


def _fate(
    attempt: AttemptPaths, number: int, condition: Condition, end: AttemptEnd | None, *, goes_on: bool
) -> tuple[AttemptWord, str, int | None, int | None]:
    """Return what became of an attempt, why, its exit code and its last step."""
    if end is not None:
        return end.status, end.message, end.exit_code, end.step
    if goes_on:
        return "goes on", "", None, None
    state = condition.state
    if state is not None and state.attempt == number and state.status != "running":
        return state.status, state.message or "", state.exit_code, state.step
    return "died", _last_words(attempt), None, None


def _is_at_work(condition: Condition, began: float | None) -> bool:
    """Whether the newest attempt goes on: while the next one starts, it has no folder yet."""
    if condition.word == "starting" and began is not None and condition.holder is not None:
        return began >= condition.holder.since
    return condition.live or condition.word == "silent"


def _last_words(attempt: AttemptPaths) -> str:
    """Return what a failed rank said, the first one; the launcher said nothing."""
    said: list[dict[str, object]] = []
    with contextlib.suppress(OSError):
        said = [outcome for path in attempt.outcomes() if (outcome := read_json(path))]
    failed = [outcome for outcome in said if outcome.get("status") == "failed" and outcome.get("message")]
    first = min(failed, key=lambda outcome: str(outcome.get("time")), default=None)
    launcher = "its launcher ended without a word"
    return launcher if first is None else f"{launcher}; rank {first.get('rank')} said: {first['message']}"


def _times(attempt: AttemptPaths) -> tuple[float | None, float | None, int]:
    said = read_json(attempt.times) or {}
    starts = said.get("starts")
    return _moment(said.get("began")), _moment(said.get("ended")), len(starts) if isinstance(starts, list) else 0


def _moment(said: object) -> float | None:
    return float(said) if isinstance(said, (int, float)) else None


def _end_of(data: Mapping[str, object]) -> AttemptEnd:
    word: EndWord | None = next((word for word in get_args(EndWord) if word == data["status"]), None)
    if word is None:
        raise ValueError(f"not an end of an attempt: {data['status']!r}")
    return AttemptEnd(
        status=word,
        exit_code=int(str(data["exit_code"])),
        message=str(data["message"]),
        step=int(str(data["step"])),
        restarts=int(str(data["restarts"])),
        time=float(str(data["time"])),
        failed_rank=_whole(data.get("failed_rank")),
        signal=_whole(data.get("signal")),
    )


def _whole(said: object) -> int | None:
    return None if said is None else int(str(said))


def _places(node: Path) -> list[RankPlace]:
    said = read_json(node) or {}
    ranks, moment = said.get("ranks"), _moment(said.get("time"))
    if not isinstance(ranks, Mapping) or moment is None:
        return []
    found = (_place(str(rank), place, node.stem, moment) for rank, place in ranks.items())
    return [place for place in found if place is not None]


def _place(rank: str, said: object, node: str, moment: float) -> RankPlace | None:
    try:
        place = dict(said) if isinstance(said, Mapping) else {}
        return RankPlace(
            rank=int(rank),
            node=node,
            section=str(place["section"]),
            step=int(place["step"]),
            silent_s=float(place["silent_s"]),
            time=moment,
        )
    except (KeyError, TypeError, ValueError):
        return None
