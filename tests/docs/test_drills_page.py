"""The page of the drills: its commands are commands, and its results are of the faults that there are."""

from __future__ import annotations

import re

import pytest

from tests.docs.documented import drills
from tests.drills.__main__ import main, parse
from tests.drills.page import PAGE, between, command_block
from tests.drills.table import FAULTS


@pytest.mark.parametrize("arguments", drills(), ids=" ".join)
def test_a_documented_drill_is_a_command(arguments: list[str]) -> None:
    parse(arguments)


def test_there_is_one_command_for_each_fault() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert text == between(text, "commands", command_block(list(FAULTS.values())))
    assert all([name] in drills() for name in FAULTS)


def test_the_list_names_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(FAULTS)


def test_the_results_are_of_every_fault_here_with_its_backends_and_of_no_other() -> None:
    rows = re.findall(r"^\| `([\w-]+)`.*? \| (torchtitan|megatron) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    expected = {(name, backend) for name, fault in FAULTS.items() for backend in fault.backends}
    assert len(rows) == len(set(rows))
    assert set(rows) <= expected
    # The lane on Slurm takes long, and is run in parts.
    assert not [row for row in expected - set(rows) if not row[0].startswith("slurm-")]


def test_a_fault_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["rank-kiled"])
    assert "rank-kiled" in capsys.readouterr().err
