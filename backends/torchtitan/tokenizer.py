"""The tokenizer slot of torchtitan when the data are random tokens, which no tokenizer made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from torchtitan.components.tokenizer import BaseTokenizer


class NoTokenizer(BaseTokenizer):  # type: ignore[misc]
    """Knows the number of tokens; refuses to read or write text."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):  # type: ignore[misc]
        """`vocab_size` counts the random tokens."""

        vocab_size: int

    def __init__(self, config: Config, *, tokenizer_path: str = "") -> None:
        super().__init__()
        self._vocab_size = config.vocab_size

    def encode(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise ValueError."""
        raise ValueError("random tokens (data.kind=mock) have no text; choose other data to use a tokenizer")

    def decode(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise ValueError."""
        raise ValueError("random tokens (data.kind=mock) have no text; choose other data to use a tokenizer")

    def get_vocab_size(self) -> int:
        """Return the number of tokens."""
        return self._vocab_size
