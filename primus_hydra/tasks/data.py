"""`task=data`: text to tokens on disk ahead of a run, token counts, and a look at the samples.

Input and tokenizer are those of the composed job, as for training: a run on what was prepared trains on the same
tokens. Refuses data that are tokens already, except to count and to show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.tasks.contract import Task


class Data(Task):
    """Prepare, count or show the data of a job."""

    name: ClassVar[str] = "data"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=data`."""

        action: Literal["prepare", "show", "count"] = key(
            "prepare", "prepare: text to tokens in task.output; show: samples; count: tokens, without writing them."
        )
        output: str | None = key(None, "prepare: folder that is made.")
        format: Literal["stream", "megatron"] = key(
            "stream", "prepare: stream for data=stream, in every backend; megatron for indexed data sets (.bin, .idx)."
        )
        splits: list[float] | None = key(
            None, "prepare: parts of train, validation and test; null: as training splits, by data.validation_fraction."
        )
        workers: int | Literal["auto"] = key("auto", "Processes that encode; auto: one for each core.", ge=1)
        part_mib: float = key(
            32.0, "Text that a process encodes at a time; an interruption loses no more of each.", unit="MiB", gt=0
        )
        strict: bool = key(False, "Fail at the first record that cannot be used, instead of listing it.")
        overwrite: bool = key(False, "prepare: replace what was prepared there before.")
        path: str | None = key(
            None, "show, count: a prepared folder, or the prefix of an indexed data set; null: the job's own data."
        )
        split: Literal["train", "validation", "test"] = key("train", "show: which split.")
        first: int = key(0, "show: position of the first sample, counted from the beginning of the run.", ge=0)
        samples: int = key(3, "show: how many samples, or documents of an indexed data set.", ge=1)
        tokens: int = key(48, "show: tokens of each; 0: all.", ge=0)
        report: Literal["text", "json"] = key("text", "What is printed: text to read, or JSON for programs.")

    options: Options

    def run(self, composed: Composed) -> int:
        """Do it; raises UserError and HostError with all problems."""
        if self.options.action == "prepare":
            from primus_hydra.tasks.data_prepare import prepare

            return prepare(self.options, composed.job)
        if self.options.action == "count":
            from primus_hydra.tasks.data_count import count

            return count(self.options, composed.job)
        from primus_hydra.tasks.data_show import show

        return show(self.options, composed.job)
