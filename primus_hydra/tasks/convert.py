"""`task=convert`: weights from Hugging Face's layout into a checkpoint of a backend, or back.

Everything that can be refused without torch is refused here; the work is done by a process of its own, on the
processor, tensor by tensor. The same command goes on where an earlier one broke off.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from primus_hydra.config.build import dump_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.count import parameter_count
from primus_hydra.config.schema import JobConfig, key
from primus_hydra.data.tokenizer import tokenizer_folder
from primus_hydra.errors import ExitCode, HostError, Problem, UserError, raise_all
from primus_hydra.run.space import GIB, size_text
from primus_hydra.tasks.contract import Task
from primus_hydra.tasks.convert_model import model_of
from primus_hydra.tasks.convert_process import converted
from primus_hydra.ui.screen import show
from primus_hydra.weights.check import open_hf
from primus_hydra.weights.export import partial_folder
from primus_hydra.weights.folder import CONFIG_FILE
from primus_hydra.weights.request import JOURNAL, NATIVE, ConvertRequest, ConvertResult, Dtype, Kind, Verify
from primus_hydra.weights.source import KEY, WeightSource, find_source
from primus_hydra.weights.tensors import unknown_form

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "keep": 2}
"""Per number; what is kept has two at least."""


class Convert(Task):
    """Convert weights, and verify them."""

    name: ClassVar[str] = "convert"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=convert`."""

        source: str | None = key(None, "A Hugging Face folder, a checkpoint of a backend, or a run.")
        step: int | None = key(None, "Which checkpoint of a run; null: the newest whole one.", ge=0)
        to: Literal["hf", "torchtitan", "megatron"] | None = key(None, "What it becomes.")
        output: str | None = key(None, "The folder to write; it gets its name when it is whole.")
        dtype: Literal["keep", "float32", "bfloat16", "float16"] = key(
            "keep", "Number format; keep: each tensor's own."
        )
        shard_gib: float = key(5.0, "Size at which a new file begins.", unit="GiB", gt=0)
        verify: Literal["auto", "logits", "tensors", "none"] = key(
            "auto",
            "Read tensors back, and compare logits with transformers; auto: if both models fit in memory.",
        )

    options: Options

    def run(self, composed: Composed) -> int:
        """Convert; raises UserError and HostError with everything that stands against it."""
        source = self._source(composed.job)
        job = replace(composed.job, model=model_of(composed, source))
        raise_all(_model_problems(job, source))
        _refuse_other_output(self._output)
        _require_room(self._output, job, source, self.options.dtype)
        with tempfile.TemporaryDirectory(prefix="primus-convert-") as folder:
            request = self._request(job, source, Path(folder))
            result = converted(request, Path(folder))
        if result is None:
            return int(ExitCode.INTERRUPTED)
        _show_result(result, request, job)
        return int(ExitCode.DONE)

    def _source(self, job: JobConfig) -> WeightSource:
        options = self.options
        missing = [name for name in ("source", "to", "output") if getattr(options, name) is None]
        raise_all([Problem(key=f"task.{name}", what="it must be named") for name in missing])
        source = find_source(str(options.source), Path(job.run.dir).expanduser(), options.step)
        raise_all(list(_direction_problems(source, self._to)))
        return source

    @property
    def _to(self) -> Kind:
        if self.options.to is None:
            raise ValueError("task.to was not looked at before it was used")
        return self.options.to

    @property
    def _output(self) -> Path:
        return Path(str(self.options.output)).expanduser().absolute()

    def _request(self, job: JobConfig, source: WeightSource, folder: Path) -> ConvertRequest:
        file = folder / "job.yaml"
        file.write_text(dump_job(job), encoding="utf-8")
        named = tokenizer_folder(job) if job.tokenizer.kind == "hf" else None
        dtype: Dtype = self.options.dtype
        verify: Verify = self.options.verify
        return ConvertRequest(
            job=str(file),
            source=str(source.folder),
            source_kind=source.kind,
            to=self._to,
            output=str(self._output),
            dtype=dtype,
            shard_bytes=int(self.options.shard_gib * GIB),
            verify=verify,
            tokenizer_dir=str(named) if named is not None else source.tokenizer_dir,
        )


def _direction_problems(source: WeightSource, to: Kind) -> Iterator[Problem]:
    if (source.kind == "hf") == (to == "hf"):
        hint = f"set task.to={' or '.join(NATIVE)}" if to == "hf" else f"convert it to hf first, and that to {to}"
        yield Problem(key="task.to", what=f"the source is {source.kind} already, not something else", hint=hint)


def _model_problems(job: JobConfig, source: WeightSource) -> list[Problem]:
    unknown = unknown_form(job.model)
    if unknown is not None:
        return [Problem(key="model.architecture", what=unknown)]
    if source.kind == "hf":
        rows = job.model.vocab_size or json.loads((source.folder / CONFIG_FILE).read_text())["vocab_size"]
        open_hf(source.folder, job, rows, key=KEY)
    return []


def _refuse_other_output(output: Path) -> None:
    """Raise UserError if something lies where the output is to be; what an earlier try left is gone on with."""
    if not output.exists():
        return
    whole = (output / JOURNAL).is_file()
    what = "it is there already" + (", and whole: nothing is left to do" if whole else "")
    raise UserError(Problem(key="task.output", what=what, where=str(output), hint="delete it, or name another folder"))


def _require_room(output: Path, job: JobConfig, source: WeightSource, dtype: Dtype) -> None:
    """Raise HostError if the disk has no room for what is still to be written."""
    above = next(folder for folder in output.parents if folder.exists())
    partial = partial_folder(output)
    written = sum(file.stat().st_size for file in partial.glob("*") if file.is_file()) if partial.is_dir() else 0
    needed = max(0, _size(job, source, dtype) - written)
    free = shutil.disk_usage(above).free
    if needed > free:
        what = f"the output takes {size_text(needed)}, and the disk has {size_text(free)}"
        raise HostError(Problem(key="task.output", what=what, where=str(above)))


def _size(job: JobConfig, source: WeightSource, dtype: Dtype) -> int:
    """Return the bytes of the output, or, where only the checkpoint knows them, what it takes at least."""
    if source.kind == "hf" and dtype == "keep":
        return sum(file.stat().st_size for file in source.folder.glob("*.safetensors"))
    return _BYTES[dtype] * parameter_count(job.model, job.model.vocab_size or 1)


def _show_result(result: ConvertResult, request: ConvertRequest, job: JobConfig) -> None:
    show("".join(f"{line}\n" for line in _lines(result, request, job)), sys.stdout)


def _lines(result: ConvertResult, request: ConvertRequest, job: JobConfig) -> Iterator[str]:
    verified = result.verified
    again = f", {result.files_reused} of them from an earlier try" if result.files_reused else ""
    yield f"{job.model.name}: {result.tensors} tensors, {size_text(result.bytes)} in {result.files} files{again}"
    yield f"at most {size_text(result.peak_bytes)} of tensors in memory, the largest {size_text(result.largest_bytes)}"
    if verified.tensors:
        yield f"{verified.tensors} tensors were read back, bit by bit the same"
    if verified.logits_off is not None:
        spread, digest = verified.logits_spread, verified.logits_hash
        yield (
            f"logits of transformers and {request.native} differ by {verified.logits_off:.2g} at most, "
            f"their spread is {spread:.2g} (checksum {digest})"
        )
    if verified.note:
        yield verified.note
    yield f"use it: init_from={'hf:' if request.to == 'hf' else ''}{request.output}"
