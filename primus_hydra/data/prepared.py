"""What data preparation leaves for the ranks: a description small enough to travel in a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Blend:
    """Several sets of tokens by weight: prefixes of indexed data sets or prepared folders, and the part each gives."""

    prefixes: Sequence[str]
    weights: Sequence[float]

    def __post_init__(self) -> None:
        # What was read from JSON is equal to what was written.
        object.__setattr__(self, "prefixes", tuple(self.prefixes))
        object.__setattr__(self, "weights", tuple(self.weights))


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """Tokens on disk (or the promise of mock tokens), and the vocabulary they come from.

    `tokens_dir` is None for mock data and for indexed data sets, which `blend` names; `held_out` names those that are
    held out, where the job has sets of their own for it. `streams` names prepared folders. `corpus_hash` identifies the
    text, `tokenizer_dir` holds `tokenizer.json` and `tokenizer_config.json`; it is None where no tokenizer was named.
    `eos_id` ends a document of an indexed data set. Token counts exclude the validation part.
    """

    vocab_size: int
    corpus_hash: str | None
    tokens_dir: str | None
    tokenizer_dir: str | None
    documents: int
    train_tokens: int
    validation_tokens: int
    blend: Blend | None = None
    eos_id: int | None = None
    held_out: Blend | None = None
    streams: Blend | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PreparedData:
        """Read what `to_json` wrote."""
        blends = {name: Blend(**data[name]) for name in ("blend", "held_out", "streams") if data.get(name)}
        return cls(**{**data, **blends})
