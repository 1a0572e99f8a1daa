"""Counts the bytes of the tensors that a conversion holds, so that its promise on memory can be tested."""

from __future__ import annotations

import weakref

import torch


class Meter:
    """Bytes of the watched tensors that are still alive: now, and at most."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.largest = 0

    def watch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor that owns its memory until it is let go; returns it."""
        size = tensor.numel() * tensor.element_size()
        self.live += size
        self.peak = max(self.peak, self.live)
        self.largest = max(self.largest, size)
        weakref.finalize(tensor, self._let_go, size)
        return tensor

    def _let_go(self, size: int) -> None:
        self.live -= size
