"""The text, and the folder prepared of it, that the commands of the page on data speak of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from primus_hydra.tasks.data import Data
from primus_hydra.tasks.data_prepare import prepare
from tests.support import make_job

TEXT = "my_text.jsonl"
PREPARED = "prepared"
DOCUMENTS = 300


def make_data(arguments: Sequence[str]) -> set[Path]:
    """Make in the current folder what a command of `task=data` reads; return the files."""
    if "task=data" not in arguments:
        return set()
    if f"data.path={TEXT}" in arguments:
        _write_text(Path(TEXT))
    if f"task.path={PREPARED}" in arguments:
        _write_text(Path(TEXT))
        job = {"data.kind": "text", "data.path": str(Path(TEXT).absolute()), "tokenizer.vocab_size": 512}
        prepare(Data.Options(output=PREPARED, workers=1), make_job(job))
    return {path for path in Path.cwd().rglob("*") if path.is_file()}


def written(arguments: Sequence[str]) -> set[Path]:
    """Return the files below `task.output` where it is a folder, else the file that it names."""
    named = [Path.cwd() / word.partition("=")[2] for word in arguments if word.startswith("task.output=")]
    return {file for path in named for file in ([*path.rglob("*")] if path.is_dir() else [path]) if not file.is_dir()}


def _write_text(file: Path) -> None:
    documents = (f"Document {number} of a text that is yours, with its own words." for number in range(DOCUMENTS))
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
