"""What is told at the end to type next leads to the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.tasks.ending import command_of_run, replaced
from primus_hydra.tasks.run_folder import run_paths


@pytest.mark.parametrize("swept", [(), ("optimizer.lr=1e-3",)])
def test_the_command_of_a_run_leads_to_its_folder_also_for_a_point_of_a_sweep(
    swept: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["platform=cpu", "run.name=mine", "optimizer.lr=1e-3"]
    composed = compose(Request(overrides=overrides, swept=swept))
    typed = [word for word in command_of_run(run_paths(composed), composed) if "=" in word]

    assert run_paths(compose(Request(overrides=typed))) == run_paths(composed)
    assert (typed == overrides) is not bool(swept)


def test_a_value_is_replaced_wherever_and_however_it_was_set() -> None:
    words = ["++run.name=a", "training.steps=3", "run.name=b"]

    assert replaced(words, {"run.name": "c"}) == ["training.steps=3", "run.name=c"]
