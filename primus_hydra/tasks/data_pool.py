"""Processes that encode parts of a corpus side by side, seen from the process that gives them their parts.

They end with the pool, however it ends. An answer is a line of JSON. Imports no torch.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from primus_hydra.config.build import to_tree
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.part_tokens import PieceOutcome
from primus_hydra.data.tokenizer import TextTokenizer
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.launch.outer import python_argv
from primus_hydra.runtime.tether import PARENT_VARIABLE

_MODULE: Final = "primus_hydra.tasks.data_worker"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DIES_WITHIN_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """A part to encode: its number, its pieces as rows, and the folder that it becomes (None: only count it)."""

    part: int
    pieces: Sequence[Sequence[int | None]]
    folder: str | None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a part is; `outcomes` where it is done (empty where its folder holds them)."""

    part: int
    text_bytes: int = 0
    tokens: int = 0
    outcomes: tuple[PieceOutcome, ...] | None = None


class Pool:
    """Runs `count` processes; use it as a context manager."""

    def __init__(self, job: JobConfig, tokenizer: TextTokenizer, count: int) -> None:
        self._spec = {
            "data": to_tree(job.data),
            "settings": to_tree(job.tokenizer),
            "tokenizer": str(tokenizer.folder),
        }
        self._count = count
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()
        self._selector.close()

    def run(self, requests: Sequence[Request]) -> Iterator[Progress]:
        """Yield what the processes say until every part is done.

        Raises HostError when a disk is full or a process was killed, UserError when the text cannot be opened.
        """
        waiting = list(reversed(requests))
        for _ in range(min(self._count, len(waiting))):
            worker = _Worker(self._spec, alone=self._count == 1)
            self._workers.append(worker)
            self._selector.register(worker.answers, selectors.EVENT_READ, worker)
            worker.ask(waiting.pop())
        left = len(requests)
        while left:
            for key, _ in self._selector.select():
                for said in key.data.said():
                    if said.outcomes is not None:
                        left -= 1
                        if waiting:
                            key.data.ask(waiting.pop())
                    yield said


class _Worker:
    """One process."""

    def __init__(self, spec: Mapping[str, Any], *, alone: bool) -> None:
        self._received = b""
        # The tokenizer's own threads would fight over the cores that the processes have.
        threads = {} if alone else {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [*python_argv(), "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, PARENT_VARIABLE: str(os.getpid())},
            start_new_session=True,  # Ctrl-C is for the parent, which ends them
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self.answers = self._process.stdin, self._process.stdout
        self._write(spec)

    def ask(self, request: Request) -> None:
        self._write({"part": request.part, "pieces": request.pieces, "folder": request.folder})

    def said(self) -> list[Progress]:
        """Return what can be read now; raises for what went wrong."""
        received = os.read(self.answers.fileno(), 1 << 16)
        if not received:
            raise self._lost()
        *lines, self._received = (self._received + received).split(b"\n")
        return [_progress(json.loads(line)) for line in lines]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DIES_WITHIN_S)
        for stream in (self._questions, self.answers):
            with contextlib.suppress(OSError):
                stream.close()

    def _write(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is gone: `said` tells how
            self._questions.write(json.dumps(message).encode() + b"\n")
            self._questions.flush()

    def _lost(self) -> Exception:
        code = self._process.wait()
        if code < 0:
            what = f"a process that encodes was ended by {signal.Signals(-code).name}"
            return HostError(Problem(what=what, hint="if memory ran out, lower task.workers or task.part_mib"))
        return RuntimeError(f"a process that encodes ended with code {code}; its words are above")


def _progress(message: Mapping[str, Any]) -> Progress:
    if "refused" in message:
        raise UserError(*(Problem(key="data.path", what=what) for what in message["refused"]))
    if "errno" in message:
        if message["errno"] in _NO_ROOM:
            raise OSError(message["errno"], message["what"])
        raise HostError(Problem(what=f"a part cannot be written: {message['what']}"))
    done = message.get("done")
    return Progress(
        part=message["part"],
        text_bytes=message.get("text_bytes", 0),
        tokens=message.get("tokens", 0),
        outcomes=None if done is None else tuple(PieceOutcome.from_json(one) for one in done),
    )
