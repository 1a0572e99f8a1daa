"""`task=data task.action=show`: samples as the ranks get them, or documents of an indexed data set, as text and ids.

Samples of `data=megatron` are drawn by Megatron in the ranks; of such data the documents are shown.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig, TokenizerConfig
from primus_hydra.data.blend import read_blend
from primus_hydra.data.file_list import expand_home
from primus_hydra.data.megatron_corpus import documents_of_split, held_fraction, open_set
from primus_hydra.data.megatron_index import bin_file, index_file
from primus_hydra.data.output import MANIFEST, PREFIXES, read_manifest
from primus_hydra.data.prepare import open_order, open_samples, prepare_data
from primus_hydra.data.split import SplitName
from primus_hydra.data.tokenizer import (
    PREPARED_FOLDER,
    TOKENIZER_FILE,
    TextTokenizer,
    load_tokenizer,
    named_tokenizer_folder,
)
from primus_hydra.errors import ExitCode, Problem, UserError
from primus_hydra.tasks.data import Data
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.portion import PortionView

_PATH: Final = "task.path"


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Tokens of one document that stand together in a sample, from place `first`; no tokenizer, no text."""

    first: int
    ids: Sequence[int]
    text: str | None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One sample or document: a line that says which, its length in tokens, and what is shown of it."""

    what: str
    tokens: int
    documents: int
    stretches: Sequence[Stretch]


def show(options: Data.Options, job: JobConfig) -> int:
    """Print what is asked for; raises UserError and HostError."""
    shown = list(_shown(options, job))
    if options.report == "json":
        print_json([dataclasses.asdict(one) for one in shown])
    else:
        print_lines(line for one in shown for line in _lines(one))
    return int(ExitCode.DONE)


def _shown(options: Data.Options, job: JobConfig) -> Iterator[Shown]:
    if options.path is None:
        if job.data.kind == "megatron":
            yield from _of_blend(options, job)
        else:
            yield from _of_samples(options, job)
        return
    path = Path(expand_home(options.path)).absolute()
    manifest = read_manifest(path)
    if manifest is not None and manifest.layout == "stream":
        data = dataclasses.replace(job.data, kind="stream", path=str(path))
        yield from _of_samples(options, dataclasses.replace(job, data=data, tokenizer=TokenizerConfig()))
    elif manifest is not None:
        yield from _of_prefix(options, job, path / PREFIXES[options.split])
    elif index_file(path).exists() or bin_file(path).exists():
        yield from _of_prefix(options, job, path)
    else:
        what = f"{path}: neither a whole prepared folder ({MANIFEST}) nor the prefix of an indexed data set"
        raise UserError(Problem(key=_PATH, what=what, hint="leave task.path out to see the job's own data"))


def _of_samples(options: Data.Options, job: JobConfig) -> Iterator[Shown]:
    """Yield samples of our own, in the order of the run."""
    if options.split == "test" and job.data.kind != "stream":
        what = "only a folder that task=data has prepared holds a test part"
        raise UserError(Problem(key="task.split", what=what, hint="name it: task.path=FOLDER"))
    with PortionView() as view:
        prepared = prepare_data(job, report=view.say)
    samples = open_samples(prepared, job, options.split)
    order = open_order(samples, job, options.split)
    tokenizer = load_tokenizer(Path(prepared.tokenizer_dir)) if prepared.tokenizer_dir else None
    end = (
        options.first + options.samples
        if options.split == "train"
        else min(options.first + options.samples, len(samples))
    )
    for position in range(options.first, end):
        index = order.index(position)
        sample = samples.sample(index)
        ids = np.append(sample.inputs, sample.labels[-1])
        borders = [0, *(np.flatnonzero(sample.positions[1:] == 0) + 1).tolist(), len(ids)]
        yield Shown(
            what=f"position {position} of {options.split}{_place(job, position, options.split)}: sample {index}",
            tokens=len(ids),
            documents=len(borders) - 1,
            stretches=list(_stretches(ids, borders, options.tokens, tokenizer)),
        )


def _place(job: JobConfig, position: int, split: str) -> str:
    """Say which rank reads a position of the run, and when."""
    layout, _ = layout_of(job)
    if layout is None or split != "train":
        return ""
    step, within = divmod(position, job.training.global_batch_size)
    microbatch, rank = divmod(within // layout.micro_batch_size, layout.dp)
    return f" (step {step + 1}, microbatch {microbatch}, data-parallel rank {rank})"


def _of_blend(options: Data.Options, job: JobConfig) -> Iterator[Shown]:
    """Yield documents of each indexed data set of the job."""
    apart = options.split == "validation" and job.data.validation_path is not None
    if options.split == "test":
        raise UserError(Problem(key="task.split", what="a job has no test part", hint="name it: task.path=PREFIX"))
    path = job.data.validation_path if apart else job.data.path
    parts, problems = read_blend(path)
    if problems:
        raise UserError(*problems)
    for part in parts:
        count = open_set(part.prefix, key="data.path").index.documents
        split: SplitName = "train" if options.split == "train" else "validation"
        documents = range(count) if apart else documents_of_split(count, split, held_fraction(job))
        yield from _of_prefix(options, job, part.prefix, documents)


def _of_prefix(options: Data.Options, job: JobConfig, prefix: Path, documents: range | None = None) -> Iterator[Shown]:
    """Yield documents of an indexed data set."""
    opened = open_set(prefix, key=_PATH)
    index, tokenizer = opened.index, _tokenizer_of(job, prefix)
    tokens = np.memmap(bin_file(prefix), dtype=index.dtype, mode="r") if index.bin_bytes else np.zeros(0, index.dtype)
    chosen = (range(index.documents) if documents is None else documents)[options.first :][: options.samples]
    for document in chosen:
        first = int(index.pointers[document]) // index.dtype.itemsize
        ids = np.asarray(tokens[first : first + int(index.lengths[document])])
        yield Shown(
            what=f"{prefix}: document {document} of {index.documents:,}",
            tokens=len(ids),
            documents=1,
            stretches=list(_stretches(ids, [0, len(ids)], options.tokens, tokenizer)),
        )


def _tokenizer_of(job: JobConfig, prefix: Path) -> TextTokenizer | None:
    """Return the tokenizer that the job names, or the one beside the data; None where there is none."""
    if job.tokenizer.kind == "hf":
        return load_tokenizer(named_tokenizer_folder(job))
    folder = prefix.parent / PREPARED_FOLDER
    return load_tokenizer(folder) if (folder / TOKENIZER_FILE).is_file() else None


def _stretches(
    ids: np.ndarray, borders: Sequence[int], limit: int, tokenizer: TextTokenizer | None
) -> Iterator[Stretch]:
    left = limit or len(ids)
    for first, stop in pairwise(borders):
        shown = [int(number) for number in ids[first : min(stop, first + left)]]
        if not shown:
            return
        left -= len(shown)
        text = tokenizer.model.decode(shown, skip_special_tokens=False) if tokenizer else None
        yield Stretch(first=first, ids=shown, text=text)


def _lines(one: Shown) -> Iterator[str]:
    documents = "1 document" if one.documents == 1 else f"{one.documents} documents"
    yield f"{one.what}, {one.tokens:,} tokens of {documents}"
    for stretch in one.stretches:
        yield f"  {stretch.first:>6}  ids   {' '.join(str(number) for number in stretch.ids)}"
        if stretch.text is not None:
            yield f"          text  {json.dumps(stretch.text, ensure_ascii=False)}"
    if (shown := sum(len(stretch.ids) for stretch in one.stretches)) < one.tokens:
        yield f"          and {one.tokens - shown:,} tokens more"
