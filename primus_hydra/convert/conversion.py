"""One conversion from its request to its result: what is read, written, looked at again, and finished.

Raises UserError for a source of another model and for an output that something else lies in, HostError for files that
cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, cast

import torch

from primus_hydra.config.count import parameter_count
from primus_hydra.config.schema import JobConfig
from primus_hydra.convert.contract import NativeFormat
from primus_hydra.convert.dcp_reader import DcpReader
from primus_hydra.convert.hf_source import HfSource
from primus_hydra.convert.journal import Journal
from primus_hydra.convert.layout import NativeLayout
from primus_hydra.convert.logits import compare_logits, memory_problem
from primus_hydra.convert.meter import Meter
from primus_hydra.convert.to_hf import ToHf
from primus_hydra.convert.to_native import ToNative
from primus_hydra.errors import Problem, UserError, raise_all
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.model_shape import shape_of
from primus_hydra.weights.check import open_hf
from primus_hydra.weights.export import ExportDtype, partial_folder, write_beside
from primus_hydra.weights.folder import CONFIG_FILE, read_folder
from primus_hydra.weights.identity import conversion_identity
from primus_hydra.weights.request import ConvertRequest, ConvertResult, Verified
from primus_hydra.weights.tensors import EMBEDDING, OUTPUT, Shape, expected_tensors

Say = Callable[[Mapping[str, Any]], None]
"""Told what happens: a `stage`, or how many `bytes` are done `of` all."""

_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FEW: Final = 3


class _Work(Protocol):
    """What both directions have in common."""

    @property
    def exact(self) -> bool:
        """Whether every number is kept."""

    def check(self, folder: Path) -> int:
        """Read everything back."""


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A request with what carries it out; `version` is the backend's."""

    request: ConvertRequest
    job: JobConfig
    native: NativeFormat
    version: str
    meter: Meter
    say: Say

    def run(self) -> ConvertResult:
        """Convert, verify, and give the output its name."""
        return self._to_hf() if self.request.to == "hf" else self._to_native()

    def _to_native(self) -> ConvertResult:
        source = Path(self.request.source)
        vocab_size = self._rows_of_config(source)
        found = open_hf(source, self.job, vocab_size, key="task.source")
        layout = self.native.layout(vocab_size)
        _require_all(layout, expected_tensors(self.job.model, vocab_size))
        journal = self._journal()
        with HfSource(found, self.meter) as pieces:
            work = ToNative(layout, pieces, self._dtype, self.meter)
            work.write(journal, shard_bytes=self.request.shard_bytes, report=self._progress(work.total_bytes))
            self.native.finish(journal.folder)
            verified = self._verified(work, journal.folder, hf=source, checkpoint=journal.folder, rows=vocab_size)
        write_manifest(journal.folder, 0, self._manifest(vocab_size))
        journal.folder.rename(self._output)
        return self._result(journal, len(layout.parts), work.total_bytes, verified)

    def _to_hf(self) -> ConvertResult:
        source = Path(self.request.source)
        reader = DcpReader(source, self.meter)
        vocab_size = self._rows_of_checkpoint(reader)
        layout = self.native.layout(vocab_size, reader.shapes.keys())
        raise_all(list(_shape_problems(reader.shapes, layout, source)))
        shapes = expected_tensors(self.job.model, vocab_size)
        _require_all(layout, shapes)
        work = ToHf(layout, reader, shapes, self._dtype, self.meter)
        journal = self._journal()
        plan = work.write(journal, shard_bytes=self.request.shard_bytes, report=self._progress(work.total_bytes))
        dtype, tokenizer = cast(ExportDtype, str(work.dtype).removeprefix("torch.")), self.request.tokenizer_dir
        model = self.job.model
        write_beside(journal.folder, plan, model=model, vocab_size=vocab_size, dtype=dtype, tokenizer_dir=tokenizer)
        open_hf(journal.folder, self.job, vocab_size, key="task.output")
        verified = self._verified(work, journal.folder, hf=journal.folder, checkpoint=source, rows=vocab_size)
        journal.folder.rename(self._output)
        return self._result(journal, len(shapes), work.total_bytes, verified)

    @property
    def _output(self) -> Path:
        return Path(self.request.output)

    @property
    def _dtype(self) -> torch.dtype | None:
        return None if self.request.dtype == "keep" else _DTYPES[self.request.dtype]

    def _rows_of_config(self, source: Path) -> int:
        rows = self.job.model.vocab_size or read_folder(source).config.get("vocab_size")
        if not isinstance(rows, int):
            what = f"neither the model nor {CONFIG_FILE} says how many tokens there are"
            raise UserError(Problem(key="model.vocab_size", what=what, where=str(source)))
        return rows

    def _rows_of_checkpoint(self, reader: DcpReader) -> int:
        shape = reader.shapes.get(self.native.embedding)
        if shape is None:
            some = ", ".join(list(reader.shapes)[:_FEW])
            what = f"this is no checkpoint of {self.native.backend}: it has no {self.native.embedding}, but {some}, ..."
            raise UserError(Problem(key="task.source", what=what, where=self.request.source))
        return self.job.model.vocab_size or shape[0]

    def _journal(self) -> Journal:
        self.say({"stage": "converting"})
        return Journal.open(partial_folder(self._output), conversion_identity(self.request, self.job, self.version))

    def _progress(self, total: int) -> Callable[[str, int], None]:
        done = 0

        def report(file: str, size: int) -> None:
            nonlocal done
            done += size
            self.say({"file": file, "bytes": done, "of": total})

        return report

    def _verified(self, work: _Work, output: Path, *, hf: Path, checkpoint: Path, rows: int) -> Verified:
        wanted = self.request.verify
        if wanted == "none":
            return Verified(note="nothing was read back")
        self.say({"stage": "reading back"})
        tensors = work.check(output)
        note = self._no_logits(work, rows)
        if note is not None or wanted == "tensors":
            return Verified(tensors=tensors, note=note)
        self.say({"stage": "comparing logits with transformers"})
        compared = compare_logits(self.native, hf=hf, checkpoint=checkpoint, vocab_size=rows)
        return replace(compared, tensors=tensors)

    def _no_logits(self, work: _Work, rows: int) -> str | None:
        """Say why logits cannot be compared, or return None; only `auto` minds the memory."""
        if not work.exact:
            return "logits were not compared: the number format was narrowed, which changes them"
        return memory_problem(parameter_count(self.job.model, rows)) if self.request.verify == "auto" else None

    def _manifest(self, vocab_size: int) -> dict[str, object]:
        model = {"name": self.job.model.name, **shape_of(self.job.model, vocab_size)}
        return {"backend": self.native.backend, "backend_version": self.version, "model": model}

    def _result(self, journal: Journal, tensors: int, size: int, verified: Verified) -> ConvertResult:
        return ConvertResult(
            files=len(journal.files),
            files_reused=journal.reused,
            tensors=tensors,
            bytes=size,
            peak_bytes=self.meter.peak,
            largest_bytes=self.meter.largest,
            verified=verified,
        )


def _require_all(layout: NativeLayout, expected: Mapping[str, Shape]) -> None:
    """Raise RuntimeError if the backend's model lacks a tensor of the Hugging Face model."""
    used = {piece.tensor for part in layout.parts for piece in part.pieces}
    unused = [name for name in expected if name not in used]
    if unused:
        raise RuntimeError(f"no weight of the backend stands for {', '.join(unused[:_FEW])} ({len(unused)} tensors)")


def _shape_problems(saved: Mapping[str, Shape], layout: NativeLayout, folder: Path) -> Iterator[Problem]:
    """Say where a checkpoint is another model's; it may have more rows of the vocabulary, which nothing uses."""
    wordy = {part.key for part in layout.parts if part.pieces[0].tensor in (EMBEDDING, OUTPUT)}
    missing = [key for key in layout.shapes if key not in saved]
    if missing:
        yield _about(folder, f"lacks {len(missing)} tensors of the model: {', '.join(missing[:_FEW])}")
    other = []
    for key, shape in layout.shapes.items():
        there = saved.get(key, shape)
        padded = key in wordy and there[1:] == shape[1:] and there[0] >= shape[0]
        if there != shape and not padded:
            other.append(f"{key} {there}, not {shape}")
    if other:
        yield _about(folder, f"has {len(other)} tensors of another shape: {', '.join(other[:_FEW])}")


def _about(folder: Path, what: str) -> Problem:
    hint = "choose the model of the checkpoint: model=..."
    return Problem(key="task.source", what=f"the checkpoint {what}", where=str(folder), hint=hint)
