"""Calling what may never come back: a file system that hangs, a driver's tool that waits for its GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def bounded(call: Callable[[], T], limit_s: float) -> T:
    """Return what `call` returns; raises TimeoutError after `limit_s`, and what it raises itself.

    What hangs is left behind in a thread that does not keep this process alive.
    """
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if not found:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return found[0]
