"""Pipeline schedules, run on paper: who computes what when, how long a step takes, and how much each rank keeps.

1F1B and its interleaved form are Narayanan et al. 2021 ("Efficient Large-Scale Language Model Training on GPU Clusters
Using Megatron-LM", 2.2), in the order of megatron-core's `pipeline_parallel/schedules.py` and torch's
`distributed/pipelining/schedules.py`. Zero-bubble schedules compute gradients of inputs (B) and of weights (W) apart
(Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): they are run here by their rule, a ready B before an F before a W
within the same memory, which comes near their published orders and is not them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["F", "B", "W"]
_ROUNDS_SIMULATED = 4
_WHOLE = ("gpipe", "loopedbfs")
_SPLIT = ("interleavedzerobubble", "zbvzerobubble", "dualpipev")


@dataclass(frozen=True)
class Op:
    """One piece of work: forward (F), backward (B), or the gradients of weights alone (W)."""

    kind: Kind
    chunk: int
    microbatch: int
    start: float = 0.0
    end: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A schedule with the seconds of its pieces: `forward` and `backward` per chunk; `passed` between two ranks.

    `rank_of` says which rank holds each chunk, in the order of the model.
    """

    schedule: str
    ranks: int
    rank_of: tuple[int, ...]
    microbatches: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    passed: float = 0.0

    @property
    def chunks_per_rank(self) -> int:
        """Chunks that each rank holds."""
        return len(self.rank_of) // self.ranks


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a schedule comes to: work of every rank in its order, seconds, and most chunks kept at once per rank."""

    work: tuple[tuple[Op, ...], ...]
    seconds: float
    in_flight: tuple[int, ...]

    @property
    def busy(self) -> float:
        """The busiest rank's seconds of work."""
        return max(sum(op.end - op.start for op in rank) for rank in self.work)

    @property
    def bubble(self) -> float:
        """Part of the step in which the busiest rank waits."""
        return 1 - self.busy / self.seconds if self.seconds else 0.0


def step_seconds(pipeline: Pipeline) -> tuple[float, float]:
    """Return (seconds, seconds of the busiest rank's work) of one step.

    Many microbatches are not all run: after the first rounds each further one adds the same time.
    """
    most = pipeline.ranks * max(_ROUNDS_SIMULATED, 2 * pipeline.chunks_per_rank)
    if pipeline.microbatches <= most + pipeline.ranks or pipeline.schedule.lower() in _WHOLE:
        run = simulate(pipeline)
        return run.seconds, run.busy
    rest = (pipeline.microbatches - most) % pipeline.ranks
    short = simulate(_with(pipeline, most + rest))
    longer = simulate(_with(pipeline, most + rest + pipeline.ranks))
    rounds = (pipeline.microbatches - most - rest) // pipeline.ranks
    return (
        short.seconds + rounds * (longer.seconds - short.seconds),
        short.busy + rounds * (longer.busy - short.busy),
    )


def _with(pipeline: Pipeline, microbatches: int) -> Pipeline:
    return Pipeline(**{**vars(pipeline), "microbatches": microbatches})


def simulate(pipeline: Pipeline) -> Timeline:
    """Run every microbatch of one step."""
    if pipeline.schedule.lower() in _SPLIT and pipeline.ranks > 1:
        return _greedy(pipeline)
    return _ordered(pipeline, [list(order(pipeline, rank)) for rank in range(pipeline.ranks)])


def most_in_flight(schedule: str, ranks: int, chunks_per_rank: int, microbatches: int, rank: int) -> int:
    """Return the most chunk forwards whose tensors a rank keeps at once, as the schedules' papers have it."""
    name, everything = schedule.lower(), microbatches * chunks_per_rank
    if ranks == 1:
        return chunks_per_rank
    if name in _WHOLE:
        return everything
    if name == "zbvzerobubble":
        return min(everything, 2 * ranks)
    if name == "dualpipev":
        return min(everything, 2 * ranks + 1)
    if chunks_per_rank == 1:
        return min(everything, ranks - rank)
    return min(everything, _warm_up(ranks, chunks_per_rank, microbatches, rank) + 1)


def _round(ranks: int, microbatches: int) -> int:
    return microbatches // max(1, microbatches // ranks)


def _warm_up(ranks: int, chunks: int, microbatches: int, rank: int) -> int:
    if chunks == 1:
        return min(microbatches, ranks - rank - 1)
    return min(microbatches * chunks, (chunks - 1) * _round(ranks, microbatches) + 2 * (ranks - rank - 1))


def order(pipeline: Pipeline, rank: int) -> Iterator[Op]:
    """Return a rank's work in the order of 1F1B, interleaved where it has several chunks; GPipe does all F first."""
    chunks = [chunk for chunk, owner in enumerate(pipeline.rank_of) if owner == rank]
    count = pipeline.microbatches * len(chunks)
    size = _round(pipeline.ranks, pipeline.microbatches)
    whole = pipeline.schedule.lower() in _WHOLE
    if whole:
        size = pipeline.microbatches
    first = count if whole else _warm_up(pipeline.ranks, len(chunks), pipeline.microbatches, rank)
    forwards = [_place("F", chunks, size, number) for number in range(count)]
    backwards = [_place("B", chunks[::-1], size, number) for number in range(count)]
    yield from forwards[:first]
    for forward, backward in zip(forwards[first:], backwards, strict=False):
        yield from (forward, backward)
    yield from backwards[count - first :]


def _place(kind: Kind, chunks: Sequence[int], size: int, number: int) -> Op:
    """Return the number-th forward or backward: `size` microbatches through one chunk, then through the next."""
    chunk = chunks[number // size % len(chunks)]
    microbatch = number // (size * len(chunks)) * size + number % size
    return Op(kind, chunk, microbatch)


def _ordered(pipeline: Pipeline, orders: Sequence[Sequence[Op]]) -> Timeline:
    done: dict[tuple[Kind, int, int], float] = {}
    work: list[list[Op]] = [[] for _ in orders]
    clock, place = [0.0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(orders):
            while place[rank] < len(mine):
                op = mine[place[rank]]
                ready = _ready(pipeline, op, done)
                if ready is None:
                    break
                start = max(clock[rank], ready)
                clock[rank] = start + _length(pipeline, op)
                done[op.kind, op.chunk, op.microbatch] = clock[rank]
                work[rank].append(Op(op.kind, op.chunk, op.microbatch, start, clock[rank]))
                place[rank] += 1
                moved = True
    if any(place[rank] < len(mine) for rank, mine in enumerate(orders)):
        raise RuntimeError(f"the order of {pipeline.schedule} waits for itself")
    return _timeline(work)


def _ready(pipeline: Pipeline, op: Op, done: dict[tuple[Kind, int, int], float]) -> float | None:
    """Return when what an operation needs has arrived, None if that is not known yet."""
    last, here = len(pipeline.rank_of) - 1, pipeline.rank_of[op.chunk]
    if op.kind == "W":
        return done.get(("B", op.chunk, op.microbatch))
    if op.kind == "F":
        if op.chunk == 0:
            return 0.0
        source, before = op.chunk - 1, done.get(("F", op.chunk - 1, op.microbatch))
    elif op.chunk == last:
        return done.get(("F", op.chunk, op.microbatch))
    else:
        source, before = op.chunk + 1, done.get(("B", op.chunk + 1, op.microbatch))
        if done.get(("F", op.chunk, op.microbatch)) is None:
            return None
    if before is None:
        return None
    return before + (pipeline.passed if pipeline.rank_of[source] != here else 0.0)


def _length(pipeline: Pipeline, op: Op) -> float:
    if op.kind == "F":
        return pipeline.forward[op.chunk]
    whole = pipeline.backward[op.chunk]
    return whole / 2 if pipeline.schedule.lower() in _SPLIT and pipeline.ranks > 1 else whole


def _greedy(pipeline: Pipeline) -> Timeline:
    """Let each rank take what is ready: a B, else an F if its memory allows, else a W."""
    ranks, chunks = pipeline.ranks, pipeline.chunks_per_rank
    caps = [most_in_flight(pipeline.schedule, ranks, chunks, pipeline.microbatches, rank) for rank in range(ranks)]
    waiting: list[list[Op]] = [[] for _ in range(ranks)]
    for microbatch in range(pipeline.microbatches):
        for chunk, rank in enumerate(pipeline.rank_of):
            waiting[rank] += [Op("F", chunk, microbatch), Op("B", chunk, microbatch), Op("W", chunk, microbatch)]
    done: dict[tuple[Kind, int, int], float] = {}
    work: list[list[Op]] = [[] for _ in range(ranks)]
    clock, kept = [0.0] * ranks, [0] * ranks
    while any(waiting):
        best: tuple[float, int, Op] | None = None
        for rank in range(ranks):
            chosen = _choose(pipeline, waiting[rank], done, clock[rank], kept[rank] < caps[rank])
            if chosen is not None and (best is None or chosen[0] < best[0]):
                best = (chosen[0], rank, chosen[1])
        if best is None:
            raise RuntimeError(f"{pipeline.schedule} waits for itself")
        start, rank, op = best
        clock[rank] = start + _length(pipeline, op)
        done[op.kind, op.chunk, op.microbatch] = clock[rank]
        kept[rank] += {"F": 1, "B": 0, "W": -1}[op.kind]
        waiting[rank].remove(op)
        work[rank].append(Op(op.kind, op.chunk, op.microbatch, start, clock[rank]))
    return _timeline(work)


_RANKING = {"B": 0, "F": 1, "W": 2}


def _choose(
    pipeline: Pipeline,
    waiting: Sequence[Op],
    done: dict[tuple[Kind, int, int], float],
    clock: float,
    room: bool,
) -> tuple[float, Op] | None:
    """Return the operation that a rank starts next, and when; what could start first wins, then the kind."""
    best: tuple[tuple[float, int, int, int], Op] | None = None
    tried = 0
    for op in waiting:
        if op.kind == "F" and not room:
            continue
        ready = _ready(pipeline, op, done)
        if ready is None:
            continue
        rank = (max(clock, ready), _RANKING[op.kind], op.microbatch, -op.chunk)
        best = (rank, op) if best is None or rank < best[0] else best
        tried += 1
        if tried > 4 * len(pipeline.rank_of):
            break
    return None if best is None else (best[0][0], best[1])


def _timeline(work: Sequence[Sequence[Op]]) -> Timeline:
    return Timeline(
        work=tuple(tuple(rank) for rank in work),
        seconds=max(rank[-1].end for rank in work),
        in_flight=tuple(_most_kept(rank) for rank in work),
    )


def _most_kept(work: Sequence[Op]) -> int:
    kept = most = 0
    splits = any(op.kind == "W" for op in work)
    for op in work:
        kept += 1 if op.kind == "F" else -1 if op.kind == ("W" if splits else "B") else 0
        most = max(most, kept)
    return most
