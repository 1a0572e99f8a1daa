"""Indexed data sets of Megatron as the corpus of a job: what they hold, how they are split, what stands against them.

Tokens are taken as they lie: there is no text, so no tokenizer can be trained on them. The one that made them is named
(`tokenizer=hf`), or the size of the vocabulary is (`model.vocab_size`). The last `data.validation_fraction` of each
data set's documents is held out, as Megatron's `split` does it; or data sets of their own are (`data.validation_path`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.blend import BlendPart, missing_files, read_blend
from primus_hydra.data.cache import Report
from primus_hydra.data.content_hash import hash_files, hash_text
from primus_hydra.data.megatron_index import BrokenIndexError, MegatronIndex, bin_file, index_file, read_index
from primus_hydra.data.prepared import Blend, PreparedData
from primus_hydra.data.split import SplitName
from primus_hydra.data.tokenizer import TextTokenizer, load_tokenizer, tokenizer_folder
from primus_hydra.errors import Problem, UserError, raise_all

_FORMAT: Final = "megatron-1"
_KEY: Final = "data.path"
_DOCUMENTS_READ: Final = 16
_TOKENS_READ: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class IndexedSet:
    """One data set of a blend, its index mapped."""

    part: BlendPart
    index: MegatronIndex

    def documents(self, split: SplitName, fraction: float) -> range:
        """Return the documents of a split."""
        return documents_of_split(self.index.documents, split, fraction)


def split_text(fraction: float) -> str:
    """Spell the training and the held-out part as Megatron's `split`, whose reader knows no exponents."""
    return f"{1 - fraction:.12f},{fraction:.12f}"


def documents_of_split(documents: int, split: SplitName, fraction: float) -> range:
    """Return which of n documents a split has; cut where Megatron's `split` cuts."""
    train, held = (float(part) for part in split_text(fraction).split(","))
    cut = round(train / (train + held) * float(documents))
    return range(cut) if split == "train" else range(cut, documents)


def check_megatron(job: JobConfig) -> list[Problem]:
    """Return what the user must mend: settings, files, sizes, and token ids as far as a quick look tells."""
    found, problems = _open_sets(job.data.path, _KEY)
    held, of_held = _held_sets(job)
    return [*problems, *of_held, *_vocabulary_problems(job), *_content_problems(job, [*found, *held])]


def held_fraction(job: JobConfig) -> float:
    """Return the part of each data set's documents that is held out: none where validation has its own data sets."""
    return 0.0 if job.data.validation_path is not None else job.data.validation_fraction


def prepare_megatron(job: JobConfig, *, report: Report, memo: Path) -> PreparedData:
    """Describe the blend for the ranks; raises UserError with every problem. Nothing is copied.

    `memo` remembers the hashes of large index files.
    """
    raise_all(check_megatron(job))
    found, _ = _open_sets(job.data.path, _KEY)
    apart, _ = _held_sets(job)
    raise_all([*_too_small(job, found, apart)])
    tokenizer = _tokenizer(job)
    train = _count_tokens(found, "train", job)
    held = [_all_tokens(one) for one in apart] if apart else _count_tokens(found, "validation", job)
    documents = sum(one.index.documents for one in [*found, *apart])
    sets = len(found) + len(apart)
    names = "data set" if sets == 1 else "data sets"
    report(f"corpus: {sets} indexed {names}, {documents:,} documents, {sum(train) + sum(held):,} tokens")
    return PreparedData(
        vocab_size=_vocab_size(job, tokenizer),
        corpus_hash=_corpus_hash([*found, *apart], memo),
        tokens_dir=None,
        tokenizer_dir=str(tokenizer.folder) if tokenizer else None,
        documents=documents,
        train_tokens=sum(train),
        validation_tokens=sum(held),
        blend=_blend(found, train),
        held_out=_blend(apart, held) if apart else None,
        eos_id=tokenizer.eos_id if tokenizer else None,
    )


def _blend(found: Sequence[IndexedSet], train_tokens: Sequence[int]) -> Blend:
    """Keep the user's weights; without, each data set weighs as many tokens as it has to train on."""
    weights = [one.part.weight or float(max(tokens, 1)) for one, tokens in zip(found, train_tokens, strict=True)]
    return Blend(
        prefixes=tuple(str(one.part.prefix) for one in found),
        weights=tuple(weight / sum(weights) for weight in weights),
    )


def _held_sets(job: JobConfig) -> tuple[list[IndexedSet], list[Problem]]:
    path = job.data.validation_path
    return _open_sets(path, "data.validation_path") if path is not None else ([], [])


def _open_sets(path: str | Sequence[str] | None, key: str) -> tuple[list[IndexedSet], list[Problem]]:
    parts, problems = read_blend(path, key=key)
    found: list[IndexedSet] = []
    for part in dict.fromkeys(parts):
        opened = _open_set(part)
        if isinstance(opened, IndexedSet):
            found.append(opened)
        else:
            problems += [replace(problem, key=key) for problem in opened]
    return found, problems


def open_set(prefix: Path, *, key: str) -> IndexedSet:
    """Open the indexed data set of a prefix that `key` names; raises UserError."""
    opened = _open_set(BlendPart(prefix=prefix))
    if isinstance(opened, IndexedSet):
        return opened
    raise UserError(*(replace(problem, key=key) for problem in opened))


def _open_set(part: BlendPart) -> IndexedSet | list[Problem]:
    if lacking := missing_files(part.prefix):
        return lacking
    file = index_file(part.prefix)
    try:
        index = read_index(file)
        with bin_file(part.prefix).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
    except BrokenIndexError as error:
        return [Problem(key=_KEY, what=f"{file}: {error}", hint="copy it again, or build the data set again")]
    except OSError as error:
        return [Problem(key=_KEY, what=f"{error.filename or file}: cannot be read: {error.strerror}")]
    if index.documents == 0:
        return [Problem(key=_KEY, what=f"{file}: holds no documents")]
    if size != index.bin_bytes:
        what = f"{bin_file(part.prefix)} has {size:,} bytes, and its index speaks of {index.bin_bytes:,}"
        return [Problem(key=_KEY, what=what, hint="the two files do not belong together, or one was not copied whole")]
    return IndexedSet(part=part, index=index)


def _vocabulary_problems(job: JobConfig) -> Iterator[Problem]:
    named = job.tokenizer.kind == "hf"
    if not named and job.model.vocab_size is None:
        hint = "name the tokenizer that made the data, tokenizer=hf tokenizer.path=DIR, or its size, model.vocab_size=N"
        yield Problem(key="tokenizer", what="none can be trained on an indexed data set: it holds no text", hint=hint)
    if not job.data.document_mask:
        return
    if not named or _has_no_end(job):
        what = "true needs the id of the token that ends a document"
        hint = "name the tokenizer that made the data, tokenizer=hf tokenizer.path=DIR, or set data.document_mask=false"
        if named:
            hint = "the tokenizer has no eos_token (tokenizer_config.json); add it, or set data.document_mask=false"
        yield Problem(key="data.document_mask", what=what, hint=hint)


def _has_no_end(job: JobConfig) -> bool:
    """Whether the tokenizer can be read and has no end token; one that cannot be read is told of elsewhere."""
    tokenizer = _readable_tokenizer(job)
    return tokenizer is not None and tokenizer.eos_id is None


def _tokenizer(job: JobConfig) -> TextTokenizer | None:
    return load_tokenizer(tokenizer_folder(job)) if job.tokenizer.kind == "hf" else None


def _readable_tokenizer(job: JobConfig) -> TextTokenizer | None:
    try:
        return _tokenizer(job)
    except UserError:
        return None


def _vocab_size(job: JobConfig, tokenizer: TextTokenizer | None) -> int:
    """Return the tokenizer's size where there is one; `check_megatron` has seen to it that something names a size."""
    size = tokenizer.vocab_size if tokenizer else job.model.vocab_size
    assert size is not None
    return size


def _content_problems(job: JobConfig, found: Sequence[IndexedSet]) -> Iterator[Problem]:
    tokenizer = _readable_tokenizer(job)
    rows = job.model.vocab_size or (tokenizer.vocab_size if tokenizer else None)
    end = tokenizer.eos_id if tokenizer and job.data.document_mask else None
    for one in found:
        yield from _look_into(one, rows, end)


def _look_into(one: IndexedSet, rows: int | None, end: int | None) -> Iterator[Problem]:
    """Read the beginning of the first and of some other documents, and their last token."""
    ends: set[int] = set()
    for document, tokens in _some_documents(one):
        ids = np.asarray(tokens[:_TOKENS_READ])
        ends.add(int(tokens[-1]))
        wrong = ids[(ids < 0) | (ids >= rows)] if rows else ids[ids < 0]
        if len(wrong):
            what = f"{one.part.prefix}: document {document} holds token {wrong[0]}, and the vocabulary has {rows}"
            yield Problem(key=_KEY, what=what, hint="name the tokenizer that made it (tokenizer.path), or its size")
            return
    if end is not None and ends and end not in ends:
        what = f"no document of {one.part.prefix} that was looked at ends with the tokenizer's end token, {end}"
        hint = "without it no border is seen: set data.document_mask=false, or name the tokenizer that made the data"
        yield Problem(key="data.document_mask", what=what, hint=hint)


def _some_documents(one: IndexedSet) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield the first and some other documents that are not empty, each with its number and its tokens, mapped."""
    if not one.index.bin_bytes:
        return
    tokens = np.memmap(bin_file(one.part.prefix), dtype=one.index.dtype, mode="r")
    count = min(_DOCUMENTS_READ, one.index.documents)
    for document in (number * one.index.documents // count for number in range(count)):
        first = int(one.index.pointers[document]) // one.index.dtype.itemsize
        ids = tokens[first : first + int(one.index.lengths[document])]
        if len(ids):
            yield document, ids


def _too_small(job: JobConfig, found: Sequence[IndexedSet], apart: Sequence[IndexedSet]) -> Iterator[Problem]:
    """Yield the parts that Megatron could not draw one sample from; it takes one token more than a sample is long."""
    needed = job.training.seq_length + 1
    for one in apart:
        if job.validation.enable and _all_tokens(one) < needed:
            what = f"{one.part.prefix} has {_all_tokens(one):,} tokens, and a sample needs {needed:,}"
            yield Problem(key="data.validation_path", what=what, hint="lower training.seq_length")
    splits: list[SplitName] = ["train", "validation"] if job.validation.enable and not apart else ["train"]
    for split in splits:
        for one, tokens in zip(found, _count_tokens(found, split, job), strict=True):
            if tokens >= needed:
                continue
            documents = len(one.documents(split, held_fraction(job)))
            what = f"the {split} part of {one.part.prefix} has {tokens:,} tokens in {documents:,} documents"
            hint = f"a sample needs {needed:,}: lower training.seq_length"
            yield Problem(key="data", what=what, hint=hint + ", or raise data.validation_fraction" * (split != "train"))


def _count_tokens(found: Sequence[IndexedSet], split: SplitName, job: JobConfig) -> list[int]:
    return [one.index.tokens_in(one.documents(split, held_fraction(job))) for one in found]


def _all_tokens(one: IndexedSet) -> int:
    return one.index.tokens_in(range(one.index.documents))


def _corpus_hash(found: Sequence[IndexedSet], memo: Path) -> str:
    """Identify the data sets by their indices and sizes: their tokens are too many to be read for it."""
    hashes = hash_files([index_file(one.part.prefix) for one in found], memo=memo)
    sizes = [str(one.index.bin_bytes) for one in found]
    return hash_text(_FORMAT, *(text for file, size in zip(hashes, sizes, strict=True) for text in (file.digest, size)))
