"""Where tokens come from, in which order, and how text becomes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The token source."""

    kind: Literal["python_stdlib", "text", "mock", "hf", "megatron", "stream"] = key("python_stdlib", "Kind of source.")
    path: str | list[str] | None = key(
        None, "text: files, folders or globs; hf: a data set folder; megatron, stream: sets, each after its weight."
    )
    validation_path: str | list[str] | None = key(
        None, "megatron: prefixes held out for validation, in place of data.validation_fraction."
    )
    text_key: str = key("text", "Field or column that holds the text of a jsonl, parquet or hf record.")
    split: str = key("train", "hf: split that is read.")
    order: Literal["shuffled", "sequential"] = key("shuffled", "Order of the samples within an epoch.")
    document_mask: bool = key(True, "Keep attention inside a document when several share a sample.")
    validation_fraction: float = key(0.01, "Part of the documents held out for validation.", ge=0, lt=1)


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text becomes tokens."""

    kind: Literal["bpe", "hf"] = key("bpe", "bpe: trained on the corpus and cached; hf: read from `path`.")
    path: str | None = key(None, "hf: folder with tokenizer.json (and tokenizer_config.json).")
    vocab_size: int = key(4096, "bpe: tokens in the vocabulary, special ones included.", ge=259)
    train_mib: float = key(
        2.0, "bpe: how much text, taken from all over the corpus, it is trained on.", unit="MiB", gt=0
    )
    bos: bool = key(True, "Begin each document with the beginning-of-text token, where there is one.")
    eos: bool = key(True, "End each document with the end-of-text token, where there is one.")
