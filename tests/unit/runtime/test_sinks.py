"""Metrics reach their file, and a bad tracker never stops a run."""

import errno
import os
import threading
from pathlib import Path

import pytest

from primus_hydra.errors import HostError
from primus_hydra.run.metrics import read_metrics
from primus_hydra.runtime.contracts import StepMetrics
from primus_hydra.runtime.sinks import FanOut, FileSink, InBackground, Tracker, values_of


def metrics(step, **values):
    return StepMetrics(step=step, loss=2.5, lr=1e-3, **values)


class Recorder(Tracker):
    name = "recorder"

    def __init__(self, fail_at=None):
        self.steps = []
        self.closed = None
        self.fail_at = fail_at

    def log(self, metrics):
        if metrics.step == self.fail_at:
            raise ConnectionError("no route")
        self.steps.append(metrics.step)

    def close(self, *, failed=False):
        self.closed = failed


@pytest.fixture
def reports():
    return []


def fan_out(tmp_path, trackers, reports):
    main = FileSink(tmp_path / "metrics.jsonl", 1, 0)
    return FanOut(main, trackers, lambda name, problem: reports.append((name, problem)))


def test_values_leave_out_what_was_not_measured_and_extra_never_replaces_ours():
    values = values_of(metrics(3, mfu=0.4, extra={"loss": 99.0, "tokens": 7.0}))
    assert values == {"loss": 2.5, "lr": 1e-3, "mfu": 0.4, "tokens": 7.0}


def test_a_failing_tracker_is_reported_once_and_the_others_go_on(tmp_path, reports):
    bad, good = Recorder(fail_at=2), Recorder()
    sink = fan_out(tmp_path, [bad, good], reports)
    for step in (1, 2, 3):
        sink.log(metrics(step))
    sink.close(failed=True)
    assert reports == [("recorder", "stopped at step 2: ConnectionError: no route")]
    assert bad.steps == [1]
    assert (good.steps, good.closed) == ([1, 2, 3], True)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_a_full_disk_under_metrics_is_an_error_of_the_host():
    with pytest.raises(HostError, match="No space left"):
        FileSink(Path("/dev/full"), 1, 0).log(metrics(1))


def test_a_disk_that_fills_up_costs_rows_and_not_the_run(tmp_path, monkeypatch, caplog):
    path, write, full = tmp_path / "metrics.jsonl", os.write, set()

    def written(descriptor, content):
        if not full:
            return write(descriptor, content)
        if len(content) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:-19])  # a part of the row still fits

    monkeypatch.setattr(os, "write", written)
    sink = FileSink(path, 1, 0)
    for step in (1, 2, 3, 4):
        full.clear() if step in (1, 4) else full.add(step)
        sink.log(metrics(step))
    sink.close()
    assert [row["step"] for row in read_metrics(path)] == [1, 4]
    assert len(path.read_text().splitlines()) == 2
    assert [record.message for record in caplog.records] == [
        "the disk is full: metrics of step 2 and later are lost until there is room",
        "metrics are written again, from step 4; 2 rows are lost",
    ]


def test_a_tracker_in_the_background_gets_every_step_before_it_closes():
    recorder = Recorder()
    tracker = InBackground(recorder)
    for step in range(100):
        tracker.log(metrics(step))
    tracker.close(failed=False)
    assert recorder.steps == list(range(100))
    assert recorder.closed is False


def test_an_error_in_the_background_surfaces_and_drops_the_tracker(tmp_path, reports):
    tracker = InBackground(Recorder(fail_at=1))
    sink = fan_out(tmp_path, [tracker], reports)
    sink.log(metrics(1))
    tracker._thread.join(5)
    sink.log(metrics(2))
    assert reports == [("recorder", "stopped at step 2: ConnectionError: no route")]


class Stuck(Recorder):
    def __init__(self):
        super().__init__()
        self.release = threading.Event()

    def log(self, metrics):
        self.release.wait(10)


def test_a_tracker_that_never_answers_neither_blocks_the_training_nor_the_end(tmp_path, reports):
    stuck = Stuck()
    sink = fan_out(tmp_path, [InBackground(stuck, capacity=3, close_timeout_s=0.05)], reports)
    for step in range(10):
        sink.log(metrics(step))
    assert len(reports) == 1
    assert "Full" in reports[0][1]
    late = InBackground(stuck, close_timeout_s=0.05)
    late.log(metrics(1))
    with pytest.raises(TimeoutError, match="not sent"):
        late.close()
    stuck.release.set()
