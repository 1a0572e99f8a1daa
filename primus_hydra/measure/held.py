"""The device that this process holds, and how long something takes on it. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_held: torch.device = torch.device("cpu")


def hold(local_rank: int, *, on_gpu: bool) -> torch.device:
    """Take the device of a local rank; raises RuntimeError if torch does not see it."""
    global _held
    if on_gpu:
        if torch.cuda.device_count() <= local_rank:
            raise RuntimeError(f"torch sees {torch.cuda.device_count()} GPUs, and this one is number {local_rank}")
        torch.cuda.set_device(local_rank)
        _held = torch.device("cuda", local_rank)
    return _held


def device() -> torch.device:
    """Return the device of this process."""
    return _held


def settle() -> None:
    """Wait until the device has done everything."""
    if _held.type == "cuda":
        torch.cuda.synchronize(_held)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one call: the median, the fastest, and how often it was called."""

    median_s: float
    best_s: float
    calls: int


def timed(call: Callable[[], object], *, seconds: float, warmup: int = 2, most: int = 200) -> Timing:
    """Call for about `seconds` (at least twice after the warm-up, at most `most` times), each call timed alone."""
    for _ in range(warmup):
        call()
    settle()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 2 or (time.perf_counter() < end and len(taken) < most):
        began = time.perf_counter()
        call()
        settle()
        taken.append(time.perf_counter() - began)
    ordered = sorted(taken)
    return Timing(median_s=ordered[len(ordered) // 2], best_s=ordered[0], calls=len(taken))


def dtype_of(name: str) -> torch.dtype:
    """Return torch's type of a number format; fp8 is the format that the hardware multiplies (OCP or FNUZ)."""
    if name == "fp8":
        fnuz = _held.type == "cuda" and "gfx94" in getattr(torch.cuda.get_device_properties(_held), "gcnArchName", "")
        return torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn
    found = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return found[name]
