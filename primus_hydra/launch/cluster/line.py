"""One connection between the launchers of two nodes: lines of JSON, and a peer that falls silent is noticed."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Mapping
from typing import Any

SEND_LIMIT_S = 20.0
_SILENCE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))
"""Seconds before the kernel asks a silent peer, between two questions, and how many may go unanswered."""
_UNHEARD_MS = 30_000
"""How long what was sent may go unacknowledged: without it the kernel tries for a quarter of an hour."""


class Line:
    """Whole messages out, whole messages in, nothing waited for unless asked; `open` is false once the peer is gone."""

    def __init__(self, connection: socket.socket) -> None:
        _notice_silence(connection)
        connection.setblocking(False)
        self._connection = connection
        self._received = b""
        self._unread: list[dict[str, Any]] = []
        self.open = True

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a peer that is gone is noticed by `receive`."""
        with contextlib.suppress(OSError):
            self._connection.settimeout(SEND_LIMIT_S)
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(OSError):
            self._connection.setblocking(False)

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come; `open` is false afterwards if no more can.

        Who sends something else than messages is no peer of ours: the line is closed.
        """
        while self.open:
            try:
                received = self._connection.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                received = b""
            self.open = bool(received)
            self._received += received
        *lines, self._received = self._received.split(b"\n")
        messages, self._unread = [*self._unread, *self._read(lines)], []
        return messages

    def wait(self, until: float) -> dict[str, Any] | None:
        """Return the next message; None if the peer is gone or the moment (monotonic) is over."""
        while time.monotonic() < until:
            self._unread = self.receive()
            if self._unread:
                return self._unread.pop(0)
            if not self.open:
                return None
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_READ)
                selector.select(min(1.0, max(0.0, until - time.monotonic())))
        return None

    def close(self) -> None:
        """Close the connection."""
        self.open = False
        self._connection.close()

    def _read(self, lines: list[bytes]) -> list[dict[str, Any]]:
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            messages = [None]
        if all(isinstance(message, dict) for message in messages):
            return messages
        self.close()
        return []


def _notice_silence(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (*_SILENCE, (socket.TCP_USER_TIMEOUT, _UNHEARD_MS)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
