"""Samples of Megatron's indexed data sets (`data=megatron`): its own GPTDataset and blend, their indices in our cache.

Megatron lets the first rank of the job write the index files while the others wait at a barrier of all ranks: on nodes
that share no file system there is nothing to read, one rank that is not asked to build stops all, and a writer that is
killed leaves half a file that counts as whole. Here every process builds for itself if it must, outside the process
group, into a folder that appears whole or not at all; whoever comes first builds and the others of the node wait.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from megatron import core
from megatron.core.datasets import helpers
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.utils import Split

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.cache import build_once, cache_root
from primus_hydra.data.content_hash import hash_text
from primus_hydra.data.megatron_corpus import documents_of_split, held_fraction, split_text
from primus_hydra.data.megatron_index import bin_file, index_file, read_index
from primus_hydra.data.prepared import Blend
from primus_hydra.data.split import SplitName
from primus_hydra.errors import HostError, Problem
from primus_hydra.runtime.contracts import RankContext

_LOG: Final = logging.getLogger(__name__)
_SPLITS: Final = {"train": Split.train, "validation": Split.valid}
_LISTING: Final = "files.json"
_FORMAT: Final = "megatron-indices-1"


class TokenIds:
    """What Megatron asks of a tokenizer once the tokens are made: how many there are, and which ends a document."""

    def __init__(self, *, vocab_size: int, eod: int | None) -> None:
        self.vocab_size = vocab_size
        self.eod = eod
        # Part of the name under which Megatron keeps indices.
        self.unique_identifiers = {"class": type(self).__name__, "vocab_size": vocab_size, "eod": eod}


class SequentialGPTDataset(GPTDataset):  # type: ignore[misc]
    """A GPTDataset without shuffling: the documents as they lie, epoch after epoch, cut into samples in that order.

    In a blend each data set is read so, and Megatron interleaves them by weight, which involves no chance either.
    """

    def _build_document_sample_shuffle_indices(self) -> tuple[Any, Any, Any]:
        stem = f"{self.unique_description_hash}-{type(self).__name__}-{self.index_split.name}"
        files = [
            Path(self.config.path_to_cache, f"{stem}-{part}_index.npy") for part in ("document", "sample", "shuffle")
        ]
        if not all(file.is_file() for file in files):
            for file, array in zip(files, self._arrays(), strict=True):
                np.save(file, array)
        document, sample, shuffle = (np.load(file, mmap_mode="r") for file in files)
        return document, sample, shuffle

    def _arrays(self) -> tuple[Any, Any, Any]:
        tokens = self._get_num_tokens_per_epoch()
        epochs = self._get_num_epochs(tokens)
        documents = np.tile(self.indices, epochs).astype(np.int32)
        samples = helpers.build_sample_idx(
            # The helper takes no memory map.
            np.array(self.dataset.sequence_lengths),
            documents,
            self.config.sequence_length,
            epochs,
            tokens,
            True,
            self.config.add_extra_token_to_sequence,
        )
        return documents, samples, np.arange(len(samples) - 1, dtype=np.int64)


def dataset_kwargs(job: JobConfig, context: RankContext) -> dict[str, Any]:
    """Return the arguments of GPTDatasetConfig that follow from the neutral keys; only for `data=megatron`.

    With a document mask no label crosses a border: the one after a document's end does not count.
    """
    blend, masked = _blend(context), job.data.document_mask
    return {
        "random_seed": job.training.seed,
        "sequence_length": job.training.seq_length,
        "blend": (list(blend.prefixes), list(blend.weights) if len(blend.weights) > 1 else None),
        "split": split_text(held_fraction(job)),
        "path_to_cache": str(cache_root() / "megatron_indices"),
        "tokenizer": TokenIds(vocab_size=job.model.vocab_size or context.data.vocab_size, eod=context.data.eos_id),
        "reset_position_ids": masked,
        "reset_attention_mask": masked,
        "eod_mask_loss": masked,
        # Ours are made where they are needed, from the borders of documents.
        "create_attention_mask": False,
    }


def open_indexed(
    config: GPTDatasetConfig, job: JobConfig, context: RankContext, split: SplitName, *, samples: int
) -> torch.utils.data.Dataset[dict[str, torch.Tensor]]:
    """Open `samples` samples of a split; not collective.

    Training is repeated and ordered as Megatron does it for that many samples, or read as it lies with
    `data.order=sequential`. Validation is read as it lies, at most once: there may be fewer samples than asked for.
    Raises HostError if this node does not see the data, or cannot write the cache.
    """
    blend = _blend(context)
    if split == "validation" and context.data.held_out is not None:
        blend = context.data.held_out
        config = _on_all_of(blend, config, split)
    _require_files(blend)
    shuffled = split == "train" and job.data.order == "shuffled"
    dataset = GPTDataset if shuffled else SequentialGPTDataset
    if split == "validation":
        samples = min(samples, _samples_without_repetition(blend, job, config))
    key = _key(config, context.data.corpus_hash, dataset.__name__, split, samples)
    folder = Path(config.path_to_cache or cache_root() / "megatron_indices") / key

    def build(draft: Path) -> None:
        _open(dataset, config, split, samples, draft)
        listing = {file.name: file.stat().st_size for file in draft.iterdir()}
        (draft / _LISTING).write_text(json.dumps(listing))

    build_once(folder, is_whole=_is_whole, build=build, report=_LOG.info, what="the sample index of this corpus")
    return _open(dataset, config, split, samples, folder)


def _on_all_of(blend: Blend, config: GPTDatasetConfig, split: SplitName) -> GPTDatasetConfig:
    """Return the configuration by which a split takes every document of data sets of its own."""
    own = copy.copy(config)
    own.blend = (list(blend.prefixes), list(blend.weights) if len(blend.weights) > 1 else None)
    own.split_matrix = [(0.0, 1.0) if number == _SPLITS[split].value else None for number in range(len(Split))]
    return own


def _open(
    dataset: type[GPTDataset], config: GPTDatasetConfig, split: SplitName, samples: int, folder: Path
) -> torch.utils.data.Dataset[dict[str, torch.Tensor]]:
    """Build one split through Megatron's builder, with the index files of `folder`."""
    number = _SPLITS[split].value
    # Not dataclasses.replace, which would derive all parts anew: only the wanted one is left.
    narrowed = copy.copy(config)
    narrowed.path_to_cache = str(folder)
    narrowed.split_matrix = [part if at == number else None for at, part in enumerate(config.split_matrix)]
    sizes = [samples if at == number else 0 for at in range(len(Split))]
    with _alone():
        built = BlendedMegatronDatasetBuilder(dataset, sizes, lambda: True, narrowed).build()
    return cast("torch.utils.data.Dataset[dict[str, torch.Tensor]]", built[number])


@contextmanager
def _alone() -> Iterator[None]:
    """Let Megatron build as in a job of one process: without barriers, and with every process as the writer."""
    distributed = torch.distributed
    before = distributed.is_initialized, distributed.get_rank
    distributed.is_initialized, distributed.get_rank = (lambda: False), (lambda group=None: 0)
    try:
        yield
    finally:
        distributed.is_initialized, distributed.get_rank = before


def _blend(context: RankContext) -> Blend:
    if context.data.blend is None:
        raise ValueError("only data.kind=megatron has indexed data sets")
    return context.data.blend


def _require_files(blend: Blend) -> None:
    files = [file for prefix in blend.prefixes for file in (bin_file(Path(prefix)), index_file(Path(prefix)))]
    if lacking := [file for file in files if not file.is_file()]:
        what = f"the data are not on this node: {', '.join(str(file) for file in lacking)}"
        raise HostError(Problem(what=what, hint="put them where every node of the job sees them, under the same path"))


def _samples_without_repetition(blend: Blend, job: JobConfig, config: GPTDatasetConfig) -> int:
    """Count the held-out samples that can be drawn by weight before a data set starts over."""
    counts = []
    for prefix, weight in zip(blend.prefixes, blend.weights, strict=True):
        index = read_index(index_file(Path(prefix)))
        held = range(index.documents)
        if job.data.validation_path is None:
            held = documents_of_split(index.documents, "validation", job.data.validation_fraction)
        tokens = index.tokens_in(held)
        counts.append(int((tokens - 1) // config.sequence_length / weight))
    return min(counts)


def _key(config: GPTDatasetConfig, corpus_hash: str | None, dataset: str, split: SplitName, samples: int) -> str:
    """Name the index files by everything that decides their content or the names that Megatron gives them."""
    decides = (
        core.__shortversion__,
        str(corpus_hash),
        dataset,
        split,
        samples,
        config.random_seed,
        config.sequence_length,
        config.blend,
        config.split,
        config.split_matrix,
        config.tokenizer.unique_identifiers,
        config.mid_level_dataset_surplus,
        config.drop_last_partial_validation_sequence,
        config.add_extra_token_to_sequence,
    )
    return hash_text(_FORMAT, *(json.dumps(value) for value in decides))


def _is_whole(folder: Path) -> bool:
    try:
        listing = json.loads((folder / _LISTING).read_text())
        return all((folder / name).stat().st_size == size for name, size in listing.items())
    except (OSError, ValueError, AttributeError):
        return False
