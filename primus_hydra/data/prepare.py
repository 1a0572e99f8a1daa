"""From configuration to samples: everything that must happen once, in the launcher's process, before ranks start.

Hash the corpus, read it through, train or load the tokenizer, encode, split; each result is kept in the cache. Ranks
then call `open_samples` and `open_order`, which only map files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.blended import BlendedSamples, BlendOrder
from primus_hydra.data.bpe import bpe_key, is_whole_tokenizer, train_bpe
from primus_hydra.data.cache import Report, build_once, cache_root
from primus_hydra.data.check import check_data, check_settings, missing_on_host
from primus_hydra.data.content_hash import FileHash, hash_files
from primus_hydra.data.corpus import Corpus, SourceSize, open_corpus, scan
from primus_hydra.data.megatron_corpus import prepare_megatron
from primus_hydra.data.order import Order, SampleOrder
from primus_hydra.data.output import SPLIT_FOLDER
from primus_hydra.data.prepared import PreparedData
from primus_hydra.data.problem_log import FaultTally, ProblemLog
from primus_hydra.data.samples import MockSamples, Samples, TokenSamples
from primus_hydra.data.split import (
    PartCounts,
    PartName,
    is_whole_split,
    map_split,
    read_counts,
    split_documents,
    write_split,
)
from primus_hydra.data.streams import prepare_streams
from primus_hydra.data.token_files import (
    ensure_index,
    is_whole_tokens,
    open_tokens,
    read_meta,
    tokens_key,
    write_tokens,
)
from primus_hydra.data.tokenizer import TextTokenizer, load_tokenizer, tokenizer_folder, tokenizer_vocab_size
from primus_hydra.errors import HostError, Problem, UserError, raise_all

_FILE_HASHES: Final = "file_hashes.json"


def prepare_data(job: JobConfig, *, report: Report) -> PreparedData:
    """Make tokens and tokenizer ready on disk; `report` gets a line for each thing that takes time.

    Raises UserError with every problem of the user's data, HostError when the machine lacks a library or disk space.
    """
    # With wrong paths, a look at the first records adds what it can; with right ones, everything is read below.
    if check_settings(job):
        raise_all(check_data(job))
    if job.data.kind == "mock":
        return _mock(job)
    if job.data.kind == "stream":
        return prepare_streams(job)
    if missing := missing_on_host(job):
        raise HostError(*missing)
    if job.data.kind == "megatron":
        return prepare_megatron(job, report=report, memo=cache_root() / _FILE_HASHES)
    return TextPreparation(job, report).run()


def open_samples(prepared: PreparedData, job: JobConfig, split: PartName) -> Samples:
    """Open the samples of a split, as a rank does; raises HostError if this node does not see the prepared tokens.

    Indexed data sets are not opened here but by Megatron: ValueError.
    """
    length, seed = job.training.seq_length, job.training.seed
    if prepared.blend is not None:
        raise ValueError("the samples of an indexed data set (data.kind=megatron) are drawn by Megatron")
    if prepared.tokens_dir is None:
        # Validation must not repeat the training samples, so it gets a seed of its own.
        seed = seed if split == "train" else seed + 1
        return MockSamples(seq_length=length, vocab_size=prepared.vocab_size, seed=seed)
    if prepared.streams is None:
        folder = Path(prepared.tokens_dir)
        return _token_samples(folder, _split_folder(folder, job), job, split, "set PRIMUS_CACHE to a folder")
    named = [
        (Path(name), weight) for name, weight in zip(prepared.streams.prefixes, prepared.streams.weights, strict=True)
    ]
    if split != "train":  # a folder may hold nothing out, if another one does
        named = [(folder, weight) for folder, weight in named if _holds(folder, split)] or named[:1]
    sets = [_token_samples(one, one / SPLIT_FOLDER, job, split, "put them into a folder") for one, _ in named]
    return BlendedSamples(sets, [weight for _, weight in named]) if len(sets) > 1 else sets[0]


def _holds(folder: Path, split: PartName) -> bool:
    counts = read_counts(folder / SPLIT_FOLDER)
    return counts is not None and counts[split].documents > 0


def _token_samples(folder: Path, table: Path, job: JobConfig, split: PartName, hint: str) -> TokenSamples:
    files, counts = open_tokens(folder), read_counts(table)
    if files is None or counts is None:
        what = f"the prepared tokens are not on this node: {folder}"
        raise HostError(Problem(what=what, hint=f"{hint} that every node of the job sees"))
    _require_sample(counts[split], job, split)
    starts, pair_ends = map_split(table, split, counts[split].documents)
    length = job.training.seq_length
    return TokenSamples(files.tokens, starts, pair_ends, seq_length=length, document_mask=job.data.document_mask)


def open_order(samples: Samples, job: JobConfig, split: PartName) -> Order:
    """Return the order in which a split is read: training as configured, validation and mock tokens as they lie.

    Samples of several sets are drawn from them by weight.
    """
    as_it_lies = split != "train" or job.data.kind == "mock"
    kind = "sequential" if as_it_lies else job.data.order
    if isinstance(samples, BlendedSamples) and split == "train":
        return BlendOrder(samples, seed=job.training.seed, kind=kind)
    return SampleOrder(len(samples), seed=job.training.seed, kind=kind)


@dataclass
class TextPreparation:
    """One preparation; what is costly is computed when first asked for, so a warm cache reads no text.

    A `tolerant` one passes over records that cannot be used where it reads text for a tokenizer.
    """

    job: JobConfig
    report: Report
    tolerant: bool = False

    def run(self) -> PreparedData:
        """Fill the cache; raises UserError and HostError as `prepare_data`."""
        corpus_hash = self.corpus_hash
        tokenizer = self.tokenizer()
        folder = self._tokens(corpus_hash, tokenizer)
        counts = self._split(folder)
        _require_sample(counts["train"], self.job, "train")
        if self.job.validation.enable:
            _require_sample(counts["validation"], self.job, "validation")
        meta = read_meta(folder)
        return PreparedData(
            vocab_size=tokenizer_vocab_size(self.job),
            corpus_hash=corpus_hash,
            tokens_dir=str(folder),
            tokenizer_dir=str(tokenizer.folder),
            documents=meta.documents if meta else 0,
            train_tokens=counts["train"].tokens,
            validation_tokens=counts["validation"].tokens,
        )

    @cached_property
    def root(self) -> Path:
        """The cache."""
        return cache_root()

    @cached_property
    def corpus(self) -> Corpus:
        """The text; raises UserError for what is wrong with its paths."""
        corpus = open_corpus(self.job.data)
        if corpus.passed_over:
            self.report(f"corpus: passed over {corpus.passed_over} empty files or files of other extensions")
        return corpus

    @cached_property
    def files(self) -> list[FileHash]:
        """The files behind the text, hashed."""
        return hash_files(self.corpus.files, memo=self.root / _FILE_HASHES)

    @cached_property
    def corpus_hash(self) -> str:
        """Identifies the text."""
        return self.corpus.content_hash(self.files)

    @cached_property
    def sizes(self) -> list[SourceSize]:
        """What each source holds, after a full reading."""
        sizes = scan(self.corpus, FaultTally() if self.tolerant else None)
        documents, text_bytes = sum(s.documents for s in sizes), sum(s.text_bytes for s in sizes)
        if documents == 0:
            raise UserError(Problem(key="data.path", what="the corpus holds no text, only blank documents"))
        self.report(f"corpus: {documents:,} documents, {text_bytes / 1e6:,.1f} MB of text in {len(self.files):,} files")
        return sizes

    def tokenizer(self) -> TextTokenizer:
        """Read the tokenizer, or train it where the cache lacks it."""
        settings = self.job.tokenizer
        if settings.kind == "hf":
            return load_tokenizer(tokenizer_folder(self.job))
        folder = self.root / "tokenizers" / bpe_key(self.corpus_hash, settings)

        def build(draft: Path) -> None:
            sizes, began = self.sizes, time.monotonic()
            train_bpe(draft, self.corpus, sizes, settings, FaultTally if self.tolerant else ProblemLog)
            self.report(f"tokenizer: {settings.vocab_size} tokens trained in {time.monotonic() - began:.1f} s")

        build_once(folder, is_whole=is_whole_tokenizer, build=build, report=self.report, what="the tokenizer")
        return load_tokenizer(folder)

    def _tokens(self, corpus_hash: str, tokenizer: TextTokenizer) -> Path:
        folder = self.root / "tokens" / tokens_key(corpus_hash, tokenizer, self.job.tokenizer)

        def build(draft: Path) -> None:
            text_bytes, began = sum(size.text_bytes for size in self.sizes), time.monotonic()
            write_tokens(
                draft,
                self.corpus,
                corpus_hash=corpus_hash,
                files=self.files,
                tokenizer=tokenizer,
                settings=self.job.tokenizer,
                text_bytes=text_bytes,
                report=self.report,
            )
            meta = read_meta(draft)
            self.report(f"tokens: {meta.tokens if meta else 0:,} encoded in {time.monotonic() - began:.1f} s")

        build_once(folder, is_whole=is_whole_tokens, build=build, report=self.report, what="the tokens of this corpus")
        ensure_index(folder, self.report)
        return folder

    def _split(self, folder: Path) -> dict[PartName, PartCounts]:
        fraction = self.job.data.validation_fraction

        def build(draft: Path) -> None:
            files = open_tokens(folder)
            if files is None:
                raise HostError(Problem(what=f"the tokens in the cache vanished while they were read: {folder}"))
            write_split(draft, split_documents(files.offsets, fraction))

        place = _split_folder(folder, self.job)
        build_once(place, is_whole=is_whole_split, build=build, report=self.report, what="the split of this corpus")
        counts = read_counts(place)
        if counts is None:
            raise HostError(Problem(what=f"the split in the cache vanished while it was read: {place}"))
        return counts


def _split_folder(tokens: Path, job: JobConfig) -> Path:
    return tokens / f"split-{job.data.validation_fraction!r}"


def _mock(job: JobConfig) -> PreparedData:
    return PreparedData(
        vocab_size=job.model.vocab_size or tokenizer_vocab_size(job),
        corpus_hash=None,
        tokens_dir=None,
        tokenizer_dir=None,
        documents=0,
        train_tokens=0,
        validation_tokens=0,
    )


def _require_sample(part: PartCounts, job: JobConfig, split: PartName) -> None:
    length = job.training.seq_length
    if part.pairs >= length:
        return
    hint = f"use more text, or training.seq_length={max(1, part.pairs)} or less"
    if split == "validation":
        hint += ", or a larger data.validation_fraction"
    what = f"the {split} part has {part.pairs:,} tokens to learn from, fewer than one sample of {length:,}"
    raise UserError(Problem(key="data", what=what, hint=hint))
