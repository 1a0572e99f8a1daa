"""What one node does when the first node asks: its clock, its devices, and what a task adds (its own checks).

Every answer is {"value": ...} or {"error": text}: nothing that goes wrong on a node may end it before it has told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from primus_hydra.measure.worker import Worker, WorkerLost

Act = Callable[[Mapping[str, Any]], Any]


class Hands:
    """The actions of a node; use `close` at the end. `environment` is that of its workers, `log` names their logs."""

    def __init__(
        self,
        *,
        python: Sequence[str],
        environment: Mapping[str, str],
        on_gpu: bool,
        logs: Path,
        name: str,
        acts: Mapping[str, Act] | None = None,
    ) -> None:
        self._python = tuple(python)
        self._environment = dict(environment)
        self._on_gpu = on_gpu
        self._logs = logs
        self._name = name
        self._workers: dict[int, Worker] = {}
        self._acts: dict[str, Act] = {"time": lambda _: time.time(), "start": self._start, "ask": self._ask}
        self._acts |= dict(acts or {})

    def act(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a message asks for: {"act": name, ...}."""
        try:
            return {"value": self._acts[str(message["act"])](message)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """End the devices' processes."""
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def _start(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Start the processes of `count` devices; return for each what it says of itself, or why it cannot."""
        until = time.monotonic() + float(message["limit_s"])
        for local_rank in range(int(message["count"])):
            if local_rank not in self._workers or self._workers[local_rank].lost is not None:
                self._workers[local_rank] = self._worker(local_rank)
        return [_said(lambda worker=worker: {"value": worker.ready(until)}) for worker in self._workers.values()]  # type: ignore[misc]

    def _worker(self, local_rank: int) -> Worker:
        return Worker(
            local_rank,
            python=self._python,
            environment=self._environment,
            on_gpu=self._on_gpu,
            log=self._logs / f"{self._name}-device-{local_rank}.log",
        )

    def _ask(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Ask each device its question (None for one that has nothing to do), all at the same time."""
        until = time.monotonic() + float(message["limit_s"])
        asked = [
            None if question is None else (self._workers[rank], self._workers[rank].send(question))
            for rank, question in enumerate(message["questions"])
        ]
        return [
            {"value": None} if one is None else _said(lambda one=one: one[0].receive(one[1], until))  # type: ignore[misc]
            for one in asked
        ]


def _said(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {name: value for name, value in call().items() if name != "number"}
    except WorkerLost as lost:
        return {"error": str(lost), "lost": True}
