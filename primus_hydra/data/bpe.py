"""Trains the byte-level BPE tokenizer of a corpus, and keeps it in the cache as Hugging Face files.

Byte-level: every byte is a token, so any text can be encoded. The same corpus and settings give the same files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final

from packaging.version import Version
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from primus_hydra.config.schema import TokenizerConfig
from primus_hydra.data.content_hash import hash_text
from primus_hydra.data.corpus import Corpus, SourceSize, documents_of
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.data.source import Source
from primus_hydra.data.tokenizer import CONFIG_FILE, TOKENIZER_FILE

BOS: Final = "<|begin_of_text|>"
EOS: Final = "<|end_of_text|>"
_FORMAT: Final = "bpe-1"
_FEWEST_SOURCES: Final = 64
_LONGEST_STRIDE: Final = 16


def bpe_key(corpus_hash: str, settings: TokenizerConfig) -> str:
    """Name the tokenizer in the cache by everything that decides its content."""
    release = Version(version("tokenizers")).release
    library = f"{release[0]}" if release[0] else f"0.{release[1]}"
    return hash_text(
        _FORMAT, library, corpus_hash, str(settings.vocab_size), repr(settings.train_mib), str(settings.bos)
    )


def is_whole_tokenizer(folder: Path) -> bool:
    """Whether a cached tokenizer can be read."""
    try:
        Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        json.loads((folder / CONFIG_FILE).read_text())
    except Exception:  # the library raises plain Exception for a missing or damaged file
        return False
    return True


def train_bpe(
    folder: Path,
    corpus: Corpus,
    sizes: Sequence[SourceSize],
    settings: TokenizerConfig,
    new_log: Callable[[], ProblemLog] = ProblemLog,
) -> None:
    """Train on a part of the corpus and write `tokenizer.json` and `tokenizer_config.json` into `folder`.

    `new_log` makes the log of a reading: one that is never full reads past any number of bad records.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = training_texts(corpus, sizes, int(settings.train_mib * 2**20), new_log)
    tokenizer.train_from_iterator(texts, trainer)
    if settings.bos:
        template = {"single": f"{BOS} $A", "pair": f"{BOS} $A {BOS} $B:1"}
        special = [(BOS, tokenizer.token_to_id(BOS))]
        tokenizer.post_processor = processors.TemplateProcessing(**template, special_tokens=special)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    (folder / CONFIG_FILE).write_text(json.dumps(_config(settings), indent=2))


def training_texts(
    corpus: Corpus, sizes: Sequence[SourceSize], budget: int, new_log: Callable[[], ProblemLog] = ProblemLog
) -> Iterator[str]:
    """Yield about `budget` bytes of text, taken evenly from all over the corpus, in a fixed order.

    Of a corpus larger than that: sources at equal distances, of each a share in proportion to its size, and of a source
    with many documents every n-th. A source is never read further than its share times 16.
    """
    total = sum(size.text_bytes for size in sizes)
    if total <= budget:
        yield from corpus.documents(new_log())
        return
    chosen = _spread(len(sizes), max(_FEWEST_SOURCES, math.ceil(2 * budget * len(sizes) / total)))
    part = budget / max(1, sum(sizes[index].text_bytes for index in chosen))
    for index in chosen:
        stride = min(_LONGEST_STRIDE, max(1, int(1 / part))) if sizes[index].documents > 1 else 1
        yield from _head(corpus.sources[index], math.ceil(min(1.0, part) * sizes[index].text_bytes), stride, new_log())


def _spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` of `count` indices at equal distances."""
    wanted = min(count, wanted)
    return [(2 * number + 1) * count // (2 * wanted) for number in range(wanted)]


def _head(source: Source, budget: int, stride: int, log: ProblemLog) -> Iterator[str]:
    for text in islice(documents_of(source, log), 0, None, stride):
        yield text[:budget]
        budget -= len(text)
        if budget <= 0:
            return


def _config(settings: TokenizerConfig) -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "add_bos_token": settings.bos,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 10**30,
    }
