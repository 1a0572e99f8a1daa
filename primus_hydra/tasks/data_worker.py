"""The process that encodes parts of a corpus: told one at a time, in lines of JSON, until its input ends.

It dies with its parent. What a library prints goes to standard error, so that standard output holds answers only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from primus_hydra.config.build import build
from primus_hydra.config.schema import DataConfig, TokenizerConfig
from primus_hydra.data.corpus import open_corpus
from primus_hydra.data.part_tokens import Encoder
from primus_hydra.data.parts import Piece
from primus_hydra.data.tokenizer import load_tokenizer
from primus_hydra.errors import PrimusError
from primus_hydra.runtime.tether import die_with_parent

BEFORE_READY = -1
"""Stands for the part where a process cannot begin."""


def main() -> None:
    """Encode what is asked for."""
    die_with_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        encoder = _open(json.loads(sys.stdin.readline()))
    except PrimusError as error:
        _say(answers, {"part": BEFORE_READY, "refused": [problem.what for problem in error.problems]})
        return
    for line in sys.stdin:
        _say(answers, _encode(encoder, json.loads(line), answers))


def _open(spec: Mapping[str, Any]) -> Encoder:
    data, _ = build(DataConfig, spec["data"])
    settings, _ = build(TokenizerConfig, spec["settings"])
    assert data is not None
    assert settings is not None, "they come from a job that was valid"
    tokenizer = load_tokenizer(Path(spec["tokenizer"]))
    return Encoder(corpus=open_corpus(data), tokenizer=tokenizer, settings=settings)


def _encode(encoder: Encoder, request: Mapping[str, Any], answers: TextIO) -> dict[str, Any]:
    number = request["part"]
    folder = Path(request["folder"]) if request["folder"] else None

    def tell(text_bytes: int, tokens: int) -> None:
        _say(answers, {"part": number, "text_bytes": text_bytes, "tokens": tokens})

    try:
        outcomes = encoder.encode(tuple(Piece.from_row(row) for row in request["pieces"]), folder, tell)
    except OSError as error:
        return {"part": number, "errno": error.errno, "what": error.strerror or str(error)}
    return {"part": number, "done": [asdict(outcome) for outcome in outcomes] if folder is None else []}


def _say(answers: TextIO, message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
