"""Verdicts, the names of tests, reports and what is saved of a preflight that died."""

from __future__ import annotations

from pathlib import Path

from primus_hydra.measure.beat import note_here
from primus_hydra.preflight.finding import Finding, NodeReport, at_least, at_most
from primus_hydra.preflight.names import SUITES, TESTS, chosen_tests
from primus_hydra.preflight.report import (
    PROGRESS,
    REPORT,
    Preflight,
    markdown_lines,
    read_preflight,
    text_lines,
    write_report,
)
from primus_hydra.preflight.salvage import note_alone, salvage
from primus_hydra.run.atomic import write_json

GOOD = Finding(test="shm", word="pass", detail="8 GiB")
BAD = at_least("p2p", 0.3, 2.0, "GB/s", "its best pair")
UNSURE = Finding(test="all_reduce", word="unknown", detail="not measured")
WEAK = Finding(test="kernel_log", word="unknown", weak=True)

FOUND = Preflight(
    suite="quick",
    tests=("shm", "p2p", "all_reduce"),
    platform="cpu",
    nodes=(
        NodeReport(host="n1", facts={"host": {"kernel": "6.1"}}, findings=(GOOD,)),
        NodeReport(host="n2", findings=(GOOD, BAD)),
        NodeReport(host="n3", findings=(UNSURE, WEAK)),
    ),
    remarks=("a remark",),
    seconds=12.0,
)


def test_a_node_fails_by_one_failure_and_is_unknown_by_one_test_that_counts() -> None:
    words = [NodeReport(host="n", findings=found).verdict for found in ((GOOD, WEAK), (GOOD, UNSURE), (UNSURE, BAD))]

    assert words == ["pass", "unknown", "fail"]


def test_a_number_that_is_none_fails() -> None:
    assert at_least("gemm", float("nan"), 1.0, "x").word == "fail"
    assert at_most("clock", float("nan"), 1.0, "x").word == "fail"
    assert at_least("gemm", 1.0, None, "x").word == "pass"


def test_the_lists_name_each_node_once(tmp_path: Path) -> None:
    write_report(FOUND, tmp_path)

    lists = {name: (tmp_path / f"{name}_nodes.txt").read_text() for name in ("passing", "failing", "unknown")}
    assert lists == {"passing": "n1\n", "failing": "n2\n", "unknown": "n3\n"}


def test_the_json_is_read_back_as_it_was(tmp_path: Path) -> None:
    write_report(FOUND, tmp_path)

    assert read_preflight(tmp_path / REPORT) == FOUND
    assert read_preflight(tmp_path / "none.json") is None


def test_the_table_shows_bad_nodes_first_with_their_reasons() -> None:
    lines = list(text_lines(FOUND))

    assert lines[0] == "preflight quick: 3 nodes: 1 pass, 1 unknown, 1 fail"
    assert lines[1].split() == ["n2", "fail", "p2p", "0.3", "GB/s"]
    assert "p2p: its best pair: 0.3 GB/s, below 2" in lines[2]
    assert "note: a remark" in lines[-1]


def test_the_markdown_has_a_row_for_each_node_and_a_column_for_each_test() -> None:
    lines = list(markdown_lines(FOUND))

    assert "| node | verdict | shm | p2p | all_reduce |" in lines
    assert "| n2 | **fail** | pass | fail 0.3 GB/s |  |" in lines


def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    tests, problems = chosen_tests("quick", ["all_reduc"], ["gem"])

    assert [problem.key for problem in problems] == ["task.tests", "task.skip"]
    assert "did you mean all_reduce?" in (problems[0].hint or "")
    assert tests == ()


def test_chosen_tests_win_over_the_suite_and_skipped_ones_are_left_out() -> None:
    assert chosen_tests("info", ["gemm", "shm"], [])[0] == ("shm", "gemm")
    assert "p2p" not in chosen_tests("full", [], ["p2p"])[0]
    assert set(SUITES["smoke"]) < set(SUITES["quick"]) | {"allocate"} <= set(TESTS)


def test_of_a_preflight_that_died_everything_known_counts_and_silence_is_a_failure(tmp_path: Path) -> None:
    progress = Preflight(
        suite="quick", tests=("shm",), platform="cpu", nodes=(NodeReport(host="n1", findings=(GOOD,)),)
    )
    write_json(tmp_path / PROGRESS, progress.to_json())
    note_alone(tmp_path, NodeReport(host="n2", findings=(GOOD,)))

    found = salvage(tmp_path, ["n1", "n2", "n3"], FOUND, "the job ended")

    assert [node.verdict for node in found.nodes] == ["unknown", "unknown", "fail"]
    assert not found.complete
    assert "no word of it; the job ended" in found.nodes[2].reasons[0]


def test_a_node_that_waited_for_a_first_one_that_hangs_is_unknown_and_the_first_one_fails(tmp_path: Path) -> None:
    for host in ("n1", "n2"):
        note_here(tmp_path, host)

    found = salvage(tmp_path, ["n1", "n2", "n3"], FOUND, "it gave no sign of life", hung="n1")

    assert [node.verdict for node in found.nodes] == ["fail", "unknown", "fail"]


def test_a_failure_that_was_found_before_the_end_stays_one(tmp_path: Path) -> None:
    progress = Preflight(suite="quick", tests=("p2p",), platform="cpu", nodes=(NodeReport(host="n1", findings=(BAD,)),))
    write_json(tmp_path / PROGRESS, progress.to_json())

    assert salvage(tmp_path, ["n1"], FOUND, "the job ended").nodes[0].verdict == "fail"
