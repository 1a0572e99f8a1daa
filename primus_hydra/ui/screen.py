"""Text for people on a stream that may fail: a reader that went away or a log on a full disk ends no run.

What a run came to is in its exit code and its files; the screen is told as far as it can be. Refuses to guess where
else the text could go.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.text import Text


def show(text: str, stream: TextIO) -> None:
    """Write to the stream at once; raises nothing of the stream's own."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError:  # a full disk may have room for the next line
        pass


def show_lines(lines: Sequence[Text], stream: TextIO) -> None:
    """Write lines, in colour on a terminal; raises nothing of the stream's own."""
    if not stream.isatty():
        show("".join(f"{line.plain}\n" for line in lines), stream)
        return
    from rich.console import Console  # slow to import, and not needed by a command that prints plain text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    with contextlib.suppress(OSError):
        for line in lines:
            console.print(line)


def settle(stream: TextIO | None) -> None:
    """Write what the stream still holds; what cannot be written is given up, or Python's own last try would fail.

    Python ends with code 120 then, whatever the code should have been.
    """
    if stream is None or stream.closed:
        return
    try:
        stream.flush()
    except OSError:
        silence(stream)


def silence(stream: TextIO) -> None:
    """Let whatever is written from now on go nowhere, and what the stream still holds as well."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a stream without a descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()
