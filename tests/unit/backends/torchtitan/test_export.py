"""Names of exported files: torch's writer numbers them all, the plan knows better."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.backends.torchtitan.export import name_as_planned, numbers
from primus_hydra.weights.export import plan_files

SHAPES = {"a": (10,), "b": (10,), "c": (10,)}


@pytest.mark.parametrize(("largest", "files"), [(1000, 1), (80, 2)])
def test_the_files_get_their_planned_names_and_the_writers_index_goes(tmp_path: Path, largest: int, files: int) -> None:
    plan = plan_files(SHAPES, "float32", largest=largest)
    for number in range(1, files + 1):
        (tmp_path / f"model-{number:05}-of-{files:05}.safetensors").write_text(str(number))
    (tmp_path / "model.safetensors.index.json").touch()

    name_as_planned(tmp_path, plan)

    assert {file.name: int(file.read_text()) for file in tmp_path.iterdir()} == {
        name: number for number, name in enumerate(plan.files, 1)
    }
    assert len(plan.files) == files
    assert numbers(plan) == ({"a": 1, "b": 1, "c": 1} if files == 1 else {"a": 1, "b": 1, "c": 2})
