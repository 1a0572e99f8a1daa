"""What data preparation leaves for the ranks: a description small enough to travel in a JSON file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """Tokens on disk (or the promise of mock tokens), and the vocabulary they come from.

    `tokens_dir` is None for mock data. `corpus_hash` identifies the text, `tokenizer_dir` holds `tokenizer.json`
    and `tokenizer_config.json`; it is None for mock data. Token counts exclude the validation part.
    """

    vocab_size: int
    corpus_hash: str | None
    tokens_dir: str | None
    tokenizer_dir: str | None
    documents: int
    train_tokens: int
    validation_tokens: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PreparedData:
        """Read what `to_json` wrote."""
        return cls(**data)
