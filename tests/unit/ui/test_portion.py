"""What a person sees of work whose whole is known."""

import io
import os
import pty
import tty

from primus_hydra.ui.portion import PortionView


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_plain_lines_tell_how_far_it_is_at_most_once_in_five_seconds():
    stream, clock = io.StringIO(), Clock()
    with PortionView(stream=stream, clock=clock) as view:
        view.say("begins")
        for second in range(12):
            clock.now = float(second)
            view.update(second / 12, f"{second} tokens/s")
    assert stream.getvalue() == "begins\n 42%  5 tokens/s\n 83%  10 tokens/s\n"


def test_a_terminal_gets_a_bar_with_the_portion_and_lines_above_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = pty.openpty()
    tty.setraw(writer)
    with os.fdopen(writer, "w") as stream:
        with PortionView(stream=stream) as view:
            view.say("one line [with] brackets")
            view.update(1.7, "12 tokens/s")
        stream.flush()
        shown = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert "one line [with] brackets" in shown
    assert "100%" in shown
    assert "12 tokens/s" in shown


def test_a_screen_that_goes_away_ends_nothing():
    reader, writer = os.pipe()
    os.close(reader)
    clock = Clock()
    with os.fdopen(writer, "w") as stream, PortionView(stream=stream, clock=clock) as view:
        view.say("nobody reads")
        clock.now = 9.0
        view.update(0.5, "this")
