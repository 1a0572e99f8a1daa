"""Traces are written for the ranks that were named, after the steps that were named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_hydra.backends.megatron.profiling import Profiler, profiled_ranks
from primus_hydra.config.schema.observe import ProfilerConfig
from primus_hydra.errors import UserError

SETTINGS = ProfilerConfig(enable=True, every=3, warmup=1, active=1)


def train(folder: Path, *, recorded: bool) -> list[str]:
    with Profiler(SETTINGS, folder, rank=1, step=10, cuda=False, recorded=recorded) as profiler:
        for _ in range(8):
            profiler.step()
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.json"))


def test_a_trace_covers_the_last_of_every_few_steps(tmp_path: Path) -> None:
    files = train(tmp_path, recorded=True)
    assert files == ["traces/step-13/rank-1.json", "traces/step-16/rank-1.json"]
    assert json.loads((tmp_path / files[0]).read_text())["traceEvents"]


def test_a_rank_that_was_not_named_writes_nothing(tmp_path: Path) -> None:
    assert train(tmp_path, recorded=False) == []


@pytest.mark.parametrize(("text", "expected"), [("0", {0}), ("0, 3", {0, 3}), ("all", {0, 1, 2, 3}), ("", set())])
def test_ranks_are_named_by_number_or_all(text: str, expected: set[int]) -> None:
    assert profiled_ranks(text, 4) == expected


def test_what_names_no_rank_is_refused() -> None:
    with pytest.raises(UserError, match="'first' does not name ranks"):
        profiled_ranks("first", 4)
