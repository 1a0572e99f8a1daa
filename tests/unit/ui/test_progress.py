"""What a person sees while a run trains."""

import io
import os
import pty
import threading
import tty

import pytest

from primus_hydra.ui.pace import Pace, Snapshot
from primus_hydra.ui.progress import ProgressView, line_of


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def row(step, **values):
    return {"step": step, "loss": 9.0 - step / 100, "time": float(step), "attempt": 1, "restart": 0, **values}


def plain(total=1000):
    stream, clock = io.StringIO(), Clock()
    return ProgressView(total, stream=stream, clock=clock), stream, clock


def steps_in(stream):
    return [int(line.split("/")[0].split()[1]) for line in stream.getvalue().splitlines() if line.startswith("step")]


def test_plain_lines_show_the_first_steps_then_one_in_five_seconds_and_always_the_last():
    view, stream, clock = plain()
    with view:
        for step in range(1, 31):
            clock.now = step / 2
            view.feed([row(step)])
    assert steps_in(stream) == [1, 2, 3, 13, 23, 30]


def test_plain_lines_show_every_validation_loss():
    view, stream, _ = plain()
    with view:
        view.feed([row(step, **({"validation_loss": 5.5} if step == 7 else {})) for step in range(1, 10)])
    assert steps_in(stream) == [1, 2, 3, 7, 9]
    assert "validation 5.5000" in stream.getvalue()


def test_a_line_holds_what_is_known_and_nothing_else():
    view, stream, _ = plain(total=100)
    view.feed([row(1, tokens_per_s=12345.0, mfu=0.412, memory_gib=63.25, step_time_s=2.0)])
    assert stream.getvalue() == (
        "step   1/100  loss 8.9900  smooth 8.9900  12.3k tok/s  MFU 41.2 %  mem 63.2 GiB  left 3 min 18 s\n"
    )
    view.feed([row(2)])
    assert "MFU" not in stream.getvalue().splitlines()[1]


def test_status_texts_come_before_the_first_step_and_no_colour_codes_reach_a_file():
    view, stream, _ = plain()
    view.status("preparing data")
    view.feed([row(1)])
    view.close()
    assert stream.getvalue().splitlines()[0] == "preparing data"
    assert "\x1b" not in stream.getvalue()


def test_a_restart_is_announced():
    view, stream, _ = plain()
    view.feed([row(1), row(2), row(2, restart=1)])
    assert "attempt 1, restart 1: training goes on with step 2" in stream.getvalue()


def test_a_closed_pipe_silences_the_view_but_does_not_stop_the_run():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        view = ProgressView(10, stream=stream)
        view.status("preparing data")
        view.feed([row(1)])
        view.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_a_loss_that_is_not_a_number_is_shown_and_does_not_poison_the_smoothed_one():
    pace = Pace(10)
    pace.take(row(1))
    shot = pace.take(row(2, loss=float("nan")))
    assert "loss nan" in line_of(shot, 10)
    assert shot.smooth_loss == pytest.approx(8.99)


def test_the_time_left_follows_the_clock_between_rows_not_the_time_of_one_step():
    pace = Pace(10)
    pace.take(row(1, time=0.0, step_time_s=1.0))
    assert pace.take(row(3, time=6.0, step_time_s=1.0)).eta_s == pytest.approx(21.0)


def test_steps_that_are_repeated_after_a_restart_begin_a_new_pace():
    pace = Pace(10)
    for step in (1, 2, 3):
        pace.take(row(step))
    shot = pace.take(row(2, time=100.0, step_time_s=2.0))
    assert shot.eta_s == pytest.approx(16.0)


FULL = Snapshot(
    step=7, loss=2.0, smooth_loss=2.1, tokens_per_s=1e6, mfu=0.4, memory_gib=60.0, validation_loss=2.2, eta_s=90.0
)


@pytest.mark.parametrize("width", [30, 50, 70, 90])
def test_a_line_fits_a_narrow_terminal_and_keeps_step_and_loss(width):
    line = line_of(FULL, 100, width)
    assert len(line) <= width
    assert line.startswith("step   7/100  loss 2.0000")


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    master, slave = pty.openpty()
    tty.setraw(slave)
    seen = bytearray()

    def read():
        while True:
            try:
                seen.extend(os.read(master, 65536))
            except OSError:
                return

    thread = threading.Thread(target=read)
    thread.start()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        yield stream, seen, thread
    thread.join(5)
    os.close(master)


def test_a_terminal_gets_one_moving_line_without_colour_under_no_color(terminal):
    stream, seen, thread = terminal
    with ProgressView(100, stream=stream) as view:
        view.status("starting 2 ranks")
        view.feed([row(step) for step in range(1, 51)])
        view.say("saved step 50")
        view.feed([row(100)])
    stream.close()
    thread.join(5)
    text = seen.decode()
    assert "starting 2 ranks" in text
    assert "saved step 50" in text
    assert "step 100/100  loss 8.0000" in text
    assert "\x1b[2K" in text
    assert "\x1b[3" not in text
