"""What one device does alone: hold memory, multiply, copy, attend; each with a check of its result. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from primus_hydra.measure.held import device, dtype_of, settle, timed

_CHECKED_ROWS = 64
"""Rows of a product that are computed again in float64 to see how far it is off."""
_PATTERN = 0x5A


def allocate(mib: int) -> dict[str, Any]:
    """Fill memory with a pattern and read it back; raises RuntimeError where the bytes are not what was written."""
    block = torch.full((mib << 20,), _PATTERN, dtype=torch.uint8, device=device())
    wrong = int((block != _PATTERN).sum().item())
    if wrong:
        raise RuntimeError(f"{wrong} of {mib << 20} bytes were read back wrong")
    return {"mib": mib}


def gemm(m: int, n: int, k: int, dtype: str = "bfloat16", seconds: float = 0.5, batch: int = 1) -> dict[str, Any]:
    """Time the product of m x k and k x n matrices: 2*m*n*k operations a product, `batch` products a call.

    `error` is the largest deviation from float64 over some rows, relative to the largest exact value.
    """
    torch.manual_seed(0)
    left, right = _operands(batch, m, n, k)
    call, product = _product(left, right, dtype)
    timing = timed(call, seconds=seconds)
    result = product()
    error = _error(result, left, right)
    return {
        "tflops": 2.0 * batch * m * n * k / timing.median_s / 1e12,
        "seconds": timing.median_s,
        "best_seconds": timing.best_s,
        "calls": timing.calls,
        "finite": bool(torch.isfinite(result).all().item()),
        "error": error,
    }


def copy(mib: int, seconds: float = 0.3) -> dict[str, Any]:
    """Time a copy inside the device's memory; each byte is read once and written once, and both count."""
    source = torch.arange((mib << 20) // 4, dtype=torch.int32, device=device())
    target = torch.empty_like(source)
    timing = timed(lambda: target.copy_(source), seconds=seconds)
    if not torch.equal(source, target):
        raise RuntimeError("the copy is not equal to what was copied")
    return {"gb_s": 2.0 * source.numel() * 4 / timing.median_s / 1e9, "seconds": timing.median_s}


def attention(
    batch: int,
    heads: int,
    kv_heads: int,
    seq: int,
    head_dim: int,
    dtype: str = "bfloat16",
    causal: bool = True,
    backward: bool = True,
    seconds: float = 0.5,
    value_dim: int | None = None,
) -> dict[str, Any]:
    """Time scaled dot-product attention.

    Operations: 2*batch*heads*seq*seq*(head_dim + value_dim), half of it where causal (what lies above the diagonal
    need not be computed); the backward pass computes 2.5 times as much (five products instead of two).
    """
    torch.manual_seed(0)
    wide = value_dim or head_dim
    shapes = ((heads, head_dim), (kv_heads, head_dim), (kv_heads, wide))
    made = [
        torch.randn(batch, count, seq, width, device=device()).to(dtype_of(dtype)).requires_grad_(backward)
        for count, width in shapes
    ]
    attend = _attention(made, causal=causal, grouped=kv_heads != heads)
    forward = timed(attend, seconds=seconds)
    operations = 2.0 * batch * heads * seq * seq * (head_dim + wide) * (0.5 if causal else 1.0)
    found = {
        "tflops": operations / forward.median_s / 1e12,
        "seconds": forward.median_s,
        "finite": bool(torch.isfinite(attend()).all().item()),
        "error": _attention_error(attend(), made, causal=causal),
    }
    if backward:
        both = timed(lambda: torch.autograd.grad(attend().sum(), made), seconds=seconds)
        found |= {"both_tflops": 3.5 * operations / both.median_s / 1e12, "both_seconds": both.median_s}
    return found


def _operands(batch: int, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return operands as a layer has them: activations, and a weight that is used transposed."""
    left = torch.randn(batch, m, k, device=device()) / k**0.5
    right = torch.randn(batch, n, k, device=device()).transpose(1, 2)
    return left, right


def _product(
    left: torch.Tensor, right: torch.Tensor, dtype: str
) -> tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]:
    """Round both operands to the format in place, and return the product to time, and the one to check."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    low_left, low_right = left.to(dtype_of(dtype)), right.to(dtype_of(dtype))
    left.copy_(low_left)
    right.copy_(low_right)
    if dtype == "fp8":
        one = torch.ones((), device=device())

        def call() -> torch.Tensor:
            return torch._scaled_mm(low_left[0], low_right[0], one, one, out_dtype=torch.bfloat16)

        return call, lambda: call()[None]
    if left.shape[0] == 1:
        return lambda: torch.mm(low_left[0], low_right[0]), lambda: torch.mm(low_left[0], low_right[0])[None]
    return lambda: torch.bmm(low_left, low_right), lambda: torch.bmm(low_left, low_right)


def _error(result: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> float:
    rows = slice(0, _CHECKED_ROWS)
    exact = left[:1, rows].double() @ right[:1].double()
    return float(((result[:1, rows].double() - exact).abs().max() / exact.abs().max()).item())


def _attention(made: list[torch.Tensor], *, causal: bool, grouped: bool) -> Callable[[], torch.Tensor]:
    def attend() -> torch.Tensor:
        query, key, value = made
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)

    return attend


def _attention_error(result: torch.Tensor, made: list[torch.Tensor], *, causal: bool) -> float:
    """Return how far the last head of the first sample is off, for some of its rows, from float64."""
    query, key, value = (tensor[0, -1].detach().double() for tensor in made)
    rows = min(_CHECKED_ROWS, query.shape[0])
    scores = query[:rows] @ key.T / query.shape[1] ** 0.5
    if causal:
        columns = torch.arange(key.shape[0], device=device())
        scores = scores.masked_fill(columns[None, :] > columns[:rows, None], float("-inf"))
    exact = scores.softmax(-1) @ value
    settle()
    return float(((result[0, -1, :rows].detach().double() - exact).abs().max() / exact.abs().max()).item())
