"""What devices do together: a process group for each question, its collectives timed and checked. Imports torch.

Rates are those of nccl-tests (PERFORMANCE.md there): the algorithm bandwidth is bytes over time, the bus bandwidth that
times 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter and all_to_all, 1 for the rest, n the ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from primus_hydra.measure.held import Timing, device, dtype_of, timed

_WARMUP = 1
_MOST_CALLS = 50
_stores: dict[int, TCPStore] = {}


def store() -> dict[str, Any]:
    """Serve a store for the next group; return the port that the kernel picked."""
    made = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
    _stores.clear()
    _stores[made.port] = made
    return {"port": made.port}


def collective(
    op: str,
    mib: list[float],
    rank: int,
    world: int,
    host: str,
    port: int,
    key: str,
    dtype: str = "float32",
    calls: int = 5,
    timeout_s: float = 60.0,
) -> dict[str, Any]:
    """Join a group, time one collective for each size, and leave.

    `seconds` are the medians of this rank's calls, `best_seconds` its fastest. `mib` is the whole buffer of a rank:
    what all_gather gathers, what reduce_scatter starts from. For p2p the first half of the ranks sends to the second,
    and it sends back: the time is that of one way. Raises RuntimeError for a wrong result, or after `timeout_s`.
    """
    limit = timedelta(seconds=timeout_s)
    meeting = _stores.get(port) or TCPStore(host, port, is_master=False, timeout=limit)
    backend = "nccl" if device().type == "cuda" else "gloo"
    dist.init_process_group(backend, store=PrefixStore(key, meeting), rank=rank, world_size=world, timeout=limit)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # names that torch 2.14 has renamed
            timings = [_measure(op, size, rank, world, dtype, calls) for size in mib]
    finally:
        dist.destroy_process_group()
    ways = 2.0 if op == "p2p" else 1.0
    return {
        "seconds": [timing.median_s / ways for timing in timings],
        "best_seconds": [timing.best_s / ways for timing in timings],
    }


def _measure(op: str, mib: float, rank: int, world: int, dtype: str, calls: int) -> Timing:
    length = max(world, int(mib * 2**20) // dtype_of(dtype).itemsize // world * world)
    buffer = torch.full((length,), float(rank + 1), dtype=dtype_of(dtype), device=device())
    run, right = _OPERATIONS[op](buffer, rank, world)
    run()
    if not right():
        raise RuntimeError(f"{op} of {mib:g} MiB over {world} ranks gave a wrong result")
    dist.barrier()
    # All ranks must call equally often: no budget of seconds, which each would feel differently.
    return timed(run, seconds=float("inf"), warmup=_WARMUP, most=min(calls, _MOST_CALLS))


_Prepared = tuple[Callable[[], object], Callable[[], bool]]


def _all_reduce(buffer: torch.Tensor, rank: int, world: int) -> _Prepared:
    work = buffer.clone()
    expected = world * (world + 1) / 2

    def run() -> None:
        dist.all_reduce(work)

    return run, lambda: bool((work[:: max(1, work.numel() // 64)] == expected).all().item())


def _all_gather(buffer: torch.Tensor, rank: int, world: int) -> _Prepared:
    part = buffer[: buffer.numel() // world].contiguous()
    whole = torch.zeros_like(buffer)
    ranks = torch.arange(1, world + 1, device=device(), dtype=buffer.dtype)

    def run() -> None:
        dist.all_gather_into_tensor(whole, part)

    return run, lambda: bool((whole.view(world, -1)[:, 0] == ranks).all().item())


def _reduce_scatter(buffer: torch.Tensor, rank: int, world: int) -> _Prepared:
    part = torch.zeros(buffer.numel() // world, dtype=buffer.dtype, device=device())

    def run() -> None:
        dist.reduce_scatter_tensor(part, buffer)

    return run, lambda: bool((part[:1] == world * (world + 1) / 2).all().item())


def _all_to_all(buffer: torch.Tensor, rank: int, world: int) -> _Prepared:
    got = torch.zeros_like(buffer)
    ranks = torch.arange(1, world + 1, device=device(), dtype=buffer.dtype)

    def run() -> None:
        dist.all_to_all_single(got, buffer)

    return run, lambda: bool((got.view(world, -1)[:, 0] == ranks).all().item())


def _p2p(buffer: torch.Tensor, rank: int, world: int) -> _Prepared:
    """Every rank of the first half talks to its counterpart, all pairs at once."""
    half = world // 2
    first, peer = rank < half, rank + half if rank < half else rank - half
    got = torch.zeros_like(buffer)

    def run() -> None:
        for sends in (first, not first):
            dist.send(buffer, peer) if sends else dist.recv(got, peer)

    return run, lambda: bool((got[:1] == peer + 1).all().item())


def _ring(buffer: torch.Tensor, rank: int, world: int) -> _Prepared:
    """Every rank sends to the next and receives from the one before, at the same time."""
    following, before = (rank + 1) % world, (rank - 1) % world
    got = torch.zeros_like(buffer)

    def run() -> None:
        work = [dist.P2POp(dist.isend, buffer, following), dist.P2POp(dist.irecv, got, before)]
        for request in dist.batch_isend_irecv(work):
            request.wait()

    return run, lambda: bool((got[:1] == before + 1).all().item())


_OPERATIONS: dict[str, Callable[[torch.Tensor, int, int], _Prepared]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "p2p": _p2p,
    "ring": _ring,
}
