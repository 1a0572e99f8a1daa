"""A text of the user's own trains in each format, and the same text is the same training in all of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from datasets import Dataset
from pyarrow import parquet

from primus_hydra.data.prepare import prepare_data
from tests.integration.ranked.lab import Lab
from tests.support import make_job

pytestmark = pytest.mark.ranks

TEXTS = [
    f"Record {number}: somebody wrote these words, {number * 7} of them, and meant it.\n" * 6 for number in range(60)
]


def as_txt(folder: Path) -> dict[str, Any]:
    for number, text in enumerate(TEXTS):
        (folder / f"{number:03}.txt").write_text(text, encoding="utf-8")
    return {"data.kind": "text", "data.path": str(folder)}


def as_gz(folder: Path) -> dict[str, Any]:
    for number, text in enumerate(TEXTS):
        (folder / f"{number:03}.txt.gz").write_bytes(gzip.compress(text.encode()))
    return {"data.kind": "text", "data.path": str(folder)}


def as_jsonl(folder: Path) -> dict[str, Any]:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return {"data.kind": "text", "data.path": str(file)}


def as_parquet(folder: Path) -> dict[str, Any]:
    file = folder / "mine.parquet"
    parquet.write_table(pyarrow.table({"text": TEXTS}), file)
    return {"data.kind": "text", "data.path": str(file)}


def as_data_set(folder: Path) -> dict[str, Any]:
    Dataset.from_dict({"text": TEXTS}).save_to_disk(str(folder / "mine"))
    return {"data.kind": "hf", "data.path": str(folder / "mine")}


FORMATS: tuple[Callable[[Path], dict[str, Any]], ...] = (as_txt, as_gz, as_jsonl, as_parquet, as_data_set)


@pytest.fixture(scope="module")
def losses(lab: Lab) -> dict[str, list[float]]:
    """Train three steps on the text in each format; the losses by format."""
    scenarios = []
    for write in FORMATS:
        folder = lab.root / write.__name__
        folder.mkdir()
        settings = {**lab.settings, **write(folder), "training.steps": 3, "validation.enable": False}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PRIMUS_CACHE", str(lab.root / "cache"))
            data = prepare_data(make_job(settings), report=lambda line: None).to_json()
        scenario = lab.scenario(f"{write.__name__}-run", settings)
        scenario.data = data
        scenarios.append(scenario)
    (results,) = lab.train(1, *scenarios)
    return {write.__name__: list(result.losses.values()) for write, result in zip(FORMATS, results, strict=True)}


@pytest.mark.parametrize("name", [write.__name__ for write in FORMATS])
def test_a_text_of_the_users_own_trains_in_each_format(name: str, losses: dict[str, list[float]]) -> None:
    assert len(losses[name]) == 3
    assert losses[name] == losses["as_txt"]
