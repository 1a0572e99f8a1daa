"""Many overrides, long values, and paths as people type them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from primus_hydra.config.provenance import Source
from tests.unit.config.conftest import Compose


def test_three_thousand_overrides_and_a_value_of_128_kib_take_seconds(composed: Compose) -> None:
    long = "it's \\" * 22_000
    start = time.process_time()

    job = composed(*(f"env.A{number}=value {number}" for number in range(3000)), f"run.group={long}").job

    assert job.env["A2999"] == "value 2999"
    assert job.run.group == long
    assert time.process_time() - start < 15


def test_relative_paths_count_from_where_the_user_stands(
    composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    found = composed("data=text", "data.path=[a/*.txt,/b]", "tokenizer.path=tok", "init_from=~/ckpt", "backend.path=..")
    job = found.job

    assert job.data.path == [f"{tmp_path}/a/*.txt", "/b"]
    assert (job.tokenizer.path, job.init_from) == (f"{tmp_path}/tok", f"{tmp_path}/home/ckpt")
    assert (job.backend.path, job.run.dir) == (f"{tmp_path}/..", f"{tmp_path}/runs")
    source = found.provenance["tokenizer.path"]
    assert isinstance(source, Source)
    assert source.text == "override 4: tokenizer.path=tok"
