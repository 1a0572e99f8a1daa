"""metrics.jsonl is strict JSON, and readers bear what a crash leaves."""

import json
import math

import pytest

from primus_hydra.run.metrics import MetricsTail, MetricsWriter, last_per_step, number, read_metrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def write(path, *steps, attempt=1, restart=0, **values):
    writer = MetricsWriter(path, attempt, restart)
    for step in steps:
        writer.write({"step": step, "loss": float(step), **values})
    writer.close()


def test_each_row_says_its_attempt_restart_and_time(path):
    write(path, 1, attempt=3, restart=2, mfu=None)
    (row,) = read_metrics(path)
    assert (row["step"], row["loss"], row["attempt"], row["restart"]) == (1, 1.0, 3, 2)
    assert number(row, "time") > 1e9
    assert "mfu" not in row


def test_a_row_can_be_read_before_the_writer_closes(path):
    MetricsWriter(path, 1, 0).write({"step": 1})
    assert len(read_metrics(path)) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_null_in_the_file_and_itself_for_readers(path, value):
    write(path, 1, grad_norm=value)

    def refuse(constant):
        raise AssertionError(constant)

    raw = json.loads(path.read_text(), parse_constant=refuse)
    assert raw["grad_norm"] is None
    assert raw["nonfinite"] == {"grad_norm": str(value)}
    read = number(read_metrics(path)[0], "grad_norm")
    assert read == value or (math.isnan(read) and math.isnan(value))


def test_a_torn_last_line_is_skipped_and_does_not_swallow_the_next_attempt(path):
    write(path, 1)
    with path.open("a") as file:
        file.write('{"step": 2, "lo')
    assert [row["step"] for row in read_metrics(path)] == [1]
    write(path, 2, attempt=2)
    assert [(row["step"], row["attempt"]) for row in read_metrics(path)] == [(1, 1), (2, 2)]


def test_the_last_row_of_a_repeated_step_counts(path):
    write(path, 1, 2, 3)
    write(path, 2, attempt=2)
    assert [(row["step"], row["attempt"]) for row in last_per_step(read_metrics(path))] == [(1, 1), (2, 2), (3, 1)]


def test_an_absent_file_has_no_rows(path):
    assert read_metrics(path) == []
    assert MetricsTail(path).poll() == []


def test_the_tail_returns_each_row_once_and_waits_for_whole_lines(path):
    tail = MetricsTail(path)
    write(path, 1, 2)
    assert [row["step"] for row in tail.poll()] == [1, 2]
    assert tail.poll() == []
    with path.open("a") as file:
        file.write('{"step"')
        file.flush()
        assert tail.poll() == []
        file.write(": 3}\n")
    assert [row["step"] for row in tail.poll()] == [3]


def test_the_tail_of_a_later_attempt_skips_what_came_before(path):
    write(path, 1, 2)
    tail = MetricsTail(path, skip_existing=True)
    write(path, 2, attempt=2)
    assert [(row["step"], row["attempt"]) for row in tail.poll()] == [(2, 2)]
