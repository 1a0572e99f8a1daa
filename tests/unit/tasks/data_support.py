"""What the tests of `task=data` share: texts, a tokenizer of their own, and preparations in this process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.output import Manifest, read_manifest
from primus_hydra.tasks.data import Data
from tests.support import make_job

SMALL = {"tokenizer.vocab_size": 300, "training.seq_length": 16, "data.validation_fraction": 0.1}


def texts(count: int, *, first: int = 0) -> list[str]:
    return [
        f"The model reads text {number} for Zoë\n" + "word " * (number % 9) for number in range(first, first + count)
    ]


def write_jsonl(file: Path, documents: Sequence[str], *, bad: Sequence[str] = (), every: int = 10) -> Path:
    """Write documents; a bad line follows every tenth, as long as there are some."""
    left, lines = list(bad), []
    for number, text in enumerate(documents, start=1):
        lines.append(json.dumps({"text": text}, ensure_ascii=False))
        if number % every == 0 and left:
            lines.append(left.pop(0))
    file.write_text("\n".join(lines) + "\n")
    return file


def write_words(folder: Path) -> Path:
    """Write a tokenizer whose tokens are words and signs; unknown ones are one token."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["end", "?", "The", "model", "reads", "text", "for", "Zoë", "word", *map(str, range(300))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "end"}))
    return folder


def text_job(path: Path | Sequence[Path], overrides: dict[str, Any] | None = None) -> JobConfig:
    where = str(path) if isinstance(path, Path) else [str(one) for one in path]
    return make_job({"data.kind": "text", "data.path": where, **SMALL, **(overrides or {})})


def options(output: Path | None = None, **values: Any) -> Data.Options:
    """Return options for one process and small parts."""
    return Data.Options(
        **{"output": str(output) if output else None, "workers": 1, "part_mib": 0.002, "report": "json", **values}
    )


def manifest_of(folder: Path) -> Manifest:
    found = read_manifest(folder)
    assert found is not None
    return found


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
