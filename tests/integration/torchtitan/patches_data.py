"""The smallest data for a torchtitan training: documents that count, whose order does not depend on the layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer

VOCABULARY = 128


class NoTokenizer(BaseTokenizer):
    """Stands where torchtitan wants a tokenizer; nothing uses it."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to set."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        raise NotImplementedError

    def decode(self, *args: Any, **kwargs: Any) -> str:
        raise NotImplementedError

    def get_vocab_size(self) -> int:
        return VOCABULARY


class CountingLoader(BaseDataLoader):
    """Sample i counts up from 7 i, in two documents; a data-parallel rank takes its part of each global batch."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to set."""

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        self.first = dp_rank * local_batch_size
        self.stride = dp_world_size * local_batch_size
        self.shape = (local_batch_size, seq_len)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        rows, length = self.shape
        start = self.first
        while True:
            samples = torch.arange(start, start + rows).unsqueeze(1)
            tokens = (7 * samples + torch.arange(length + 1)) % VOCABULARY
            positions = torch.arange(length).remainder(length - 20).expand(rows, length)
            yield {"input": tokens[:, :-1], "positions": positions.contiguous()}, tokens[:, 1:].contiguous()
            start += self.stride

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass
