"""Indexed data sets of numbered tokens, and a tokenizer on disk for them, for tests of `data=megatron`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.megatron_index import bin_file, index_file, write_index
from tests.support import make_job

END = 0
VOCABULARY = 1000


def write_indexed(prefix: Path, documents: Sequence[Sequence[int]], *, dtype: str = "<u2") -> Path:
    """Write documents of token ids; returns the prefix."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    offsets = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.int64)
    bin_file(prefix).write_bytes(np.concatenate([np.asarray(one) for one in documents]).astype(dtype).tobytes())
    write_index(index_file(prefix), offsets, dtype)
    return prefix


def numbered_documents(count: int, *, first: int = 1, length: int = 10) -> list[list[int]]:
    """Return documents of different lengths that hold their own number, each closed by the end token."""
    return [[first + number] * (length + number % 4) + [END] for number in range(count)]


def write_tokenizer(folder: Path, *, size: int = VOCABULARY, end: str | None = "t0") -> Path:
    """Write a tokenizer of `size` words, t0 to t{size - 1}, whose end token is `end`."""
    folder.mkdir(parents=True, exist_ok=True)
    words = models.WordLevel({f"t{number}": number for number in range(size)}, unk_token="t1")
    Tokenizer(words).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end} if end else {}))
    return folder


def indexed_job(
    path: Path | str | list[str], tokenizer: Path | None = None, overrides: dict[str, Any] | None = None
) -> JobConfig:
    """Return a tiny job on indexed data sets, with a tokenizer on disk or else the size of a vocabulary."""
    named: dict[str, Any] = {"model.vocab_size": VOCABULARY, "data.document_mask": False}
    if tokenizer:
        named = {"tokenizer.kind": "hf", "tokenizer.path": str(tokenizer)}
    where = path if isinstance(path, list) else str(path)
    data = {"data.kind": "megatron", "data.path": where, "training.seq_length": 16, "data.validation_fraction": 0.1}
    return make_job({**data, **named, **(overrides or {})})
