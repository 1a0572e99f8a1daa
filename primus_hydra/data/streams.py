"""Folders that `task=data` has prepared, as the corpus of a job (`data=stream`): one, or several blended by weight.

The tokens, their tokenizer and the splits are the folder's. A folder that is not whole is refused, and one whose
tokenizer is not the one that the job names, or not the other folders'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.blend import BlendPart, read_blend
from primus_hydra.data.blended import SMALLEST_WEIGHT
from primus_hydra.data.content_hash import hash_file, hash_text
from primus_hydra.data.output import MANIFEST, Manifest, read_manifest
from primus_hydra.data.prepared import Blend, PreparedData
from primus_hydra.data.tokenizer import PREPARED_FOLDER, TOKENIZER_FILE, named_tokenizer_folder
from primus_hydra.errors import Problem, UserError, raise_all

_FORMAT: Final = "stream-1"
_KEY: Final = "data.path"
_SHAPE: Final = "write data.path=FOLDER, data.path=[A,B] or data.path=[0.7,A,0.3,B]"


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One folder of a blend."""

    part: BlendPart
    manifest: Manifest


def check_streams(job: JobConfig) -> list[Problem]:
    """Return what the user must mend."""
    return _open_streams(job)[1]


def prepare_streams(job: JobConfig) -> PreparedData:
    """Describe the folders for the ranks; raises UserError with every problem. Nothing is copied."""
    found, problems = _open_streams(job)
    raise_all(problems)
    first = found[0]
    train = [one.manifest.splits["train"].tokens for one in found]
    weights = [one.part.weight or float(tokens) for one, tokens in zip(found, train, strict=True)]
    return PreparedData(
        vocab_size=first.manifest.vocab_size,
        corpus_hash=hash_text(_FORMAT, *(one.manifest.key for one in found)),
        tokens_dir=str(first.part.prefix),
        tokenizer_dir=str(first.part.prefix / PREPARED_FOLDER),
        documents=sum(one.manifest.documents for one in found),
        train_tokens=sum(train),
        validation_tokens=sum(one.manifest.splits["validation"].tokens for one in found),
        streams=Blend(
            prefixes=tuple(str(one.part.prefix) for one in found),
            weights=tuple(weight / sum(weights) for weight in weights),
        ),
    )


def _open_streams(job: JobConfig) -> tuple[list[Stream], list[Problem]]:
    parts, problems = read_blend(job.data.path, needs="the folder that task=data has prepared", shape=_SHAPE)
    opened = [(part, _open_stream(part.prefix)) for part in parts]
    problems += [found for _, found in opened if isinstance(found, Problem)]
    streams = [Stream(part=part, manifest=found) for part, found in opened if isinstance(found, Manifest)]
    return streams, [*problems, *_tokenizer_problems(job, streams), *_weight_problems(streams)]


def _open_stream(folder: Path) -> Manifest | Problem:
    if not folder.is_dir():
        there = folder.with_name(f"{folder.name}.unfinished").is_dir()
        hint = "its preparation is not finished: type the same task=data again" if there else _SHAPE
        return Problem(key=_KEY, what=f"{folder}: there is no such folder", hint=hint)
    manifest = read_manifest(folder)
    if manifest is None:
        what = f"{folder}: not a prepared folder, or not a whole one ({MANIFEST})"
        return Problem(key=_KEY, what=what, hint="prepare it with task=data, or copy it again")
    if manifest.layout != "stream":
        hint = f"set data=megatron data.path={folder}/train, or prepare it with task.format=stream"
        return Problem(key=_KEY, what=f"{folder}: holds indexed data sets of Megatron", hint=hint)
    return manifest


def _tokenizer_problems(job: JobConfig, streams: Sequence[Stream]) -> Iterator[Problem]:
    hashes = {one.manifest.tokenizer_hash for one in streams}
    if len(hashes) > 1:
        yield Problem(key=_KEY, what="the folders were made with different tokenizers", hint="prepare them with one")
        return
    if job.tokenizer.kind != "hf" or not streams:
        return
    try:
        named = hash_file(named_tokenizer_folder(job) / TOKENIZER_FILE)
    except UserError:  # told by the check of the tokenizer
        return
    if named not in hashes:
        what = f"{streams[0].part.prefix} was made with another tokenizer"
        hint = "leave tokenizer out: the folder holds its own"
        yield Problem(key="tokenizer.path", what=what, hint=hint)


def _weight_problems(streams: Sequence[Stream]) -> Iterator[Problem]:
    total = sum(one.part.weight or 0.0 for one in streams)
    for one in streams:
        if one.part.weight and one.part.weight / total < SMALLEST_WEIGHT:
            what = f"the weight of {one.part.prefix} is less than {SMALLEST_WEIGHT:g} of all"
            yield Problem(key=_KEY, what=what, hint="give it more, or leave it out")
