"""The conversions that a page shows are asked for as they are typed; their sources are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.app import run_command
from primus_hydra.tasks import convert
from primus_hydra.weights.request import ConvertRequest, ConvertResult, Verified
from tests.docs.documented import Documented, documented
from tests.unit.weights.made_sources import make_run
from tests.unit.weights.model_folder import job_from, write_folder

CONVERSIONS = [case for case in documented() if "task=convert" in case.arguments]


@pytest.mark.parametrize("case", CONVERSIONS, ids=str)
def test_a_documented_conversion_is_one(case: Documented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = dict(word.split("=", 1) for word in case.arguments)
    make_source(Path(typed["task.source"]))
    asked: list[ConvertRequest] = []

    def note(request: ConvertRequest, folder: Path) -> ConvertResult:
        asked.append(request)
        return ConvertResult(
            files=1, files_reused=0, tensors=1, bytes=1, peak_bytes=1, largest_bytes=1, verified=Verified()
        )

    monkeypatch.setattr(convert, "converted", note)

    assert run_command(case.arguments) == 0
    assert [(request.to, request.output) for request in asked] == [
        (typed["task.to"], str(tmp_path / typed["task.output"]))
    ]


def make_source(named: Path) -> None:
    """Make what a page names: a Hugging Face folder, a step of a run, or a run."""
    if named.parts[0] == "hub":
        write_folder(named, job_from(named))
    elif named.name.startswith("step-"):
        make_run(named.parent.parent, "torchtitan", (int(named.name.removeprefix("step-")),))
    else:
        make_run(Path("runs") / named, "megatron", (10,))


def test_both_directions_are_documented() -> None:
    assert {word for case in CONVERSIONS for word in case.arguments if word.startswith("task.to=")} == {
        "task.to=hf",
        "task.to=megatron",
        "task.to=torchtitan",
    }
