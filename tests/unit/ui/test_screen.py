"""A screen that fails ends nothing and changes no exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from primus_hydra.ui.screen import settle, show

SCRIPT = """
import sys
from primus_hydra.guard import guarded
from primus_hydra.ui.screen import show

def run():
    sys.stdin.readline()  # the reader is gone by now
    {body}
    return 75

sys.exit(guarded(run))
"""


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield stream


def test_a_reader_that_went_away_is_not_noticed(unread: TextIO) -> None:
    show("one\n", unread)
    show("two\n", unread)
    unread.write("three\n")
    unread.flush()


def test_what_a_stream_still_holds_is_given_up_at_the_end(unread: TextIO) -> None:
    unread.write("held\n")
    settle(unread)
    unread.flush()
    settle(None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="cannot be had here: /dev/full")
def test_a_log_on_a_full_disk_ends_nothing() -> None:
    with open("/dev/full", "w", encoding="utf-8") as log:  # noqa: PTH123
        show("one\n", log)
        settle(log)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("show('told', sys.stdout)", 75),
        ("sys.stdout.write('held back')", 75),
        ("print('a task that only prints'); sys.stdout.flush()", 0),
    ],
)
def test_an_exit_code_is_what_it_is_without_a_reader(body: str, code: int) -> None:
    argv = [sys.executable, "-c", SCRIPT.format(body=body)]
    held = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=held) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(b"\n")

    assert (process.returncode, errors) == (code, b"")
