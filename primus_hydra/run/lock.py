"""The lock that keeps two live attempts out of one run.

`flock` is used where the file system has it: the kernel frees it when the holder dies, however it dies. Elsewhere an
exclusively created claim file stands in; a claim left by a dead process of this host is taken over, and one left by an
earlier start of the same job of a scheduler, which starts a job again only after its end. One left on another host has
to be removed by hand otherwise, because nothing here can tell whether that process lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal

import psutil

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.process import start_mark

Life = Literal["free", "alive", "dead", "unknown"]
_AGAIN_S = 0.5
_NO_FLOCK = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """Who holds the lock; `since` is seconds since the epoch, `mark` tells the process from others of its number.

    `job` is a scheduler's number of the job, with how often it was started again: `71.0`.
    """

    host: str
    pid: int
    since: float
    command: str
    mark: str | None = None
    job: str | None = None

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since).isoformat(sep=" ", timespec="seconds")
        return f"process {self.pid} on {self.host} since {since} ({self.command})"


class RunLock:
    """Context manager around one attempt; entering raises UserError that names the holder of a busy lock.

    `wait_s` is how long a busy lock may stay so: a file system needs its time to see that another machine has died.
    """

    def __init__(
        self, path: Path, command: Sequence[str] | None = None, *, wait_s: float = 0.0, job: str | None = None
    ) -> None:
        self._path = path
        self._wait_s = wait_s
        self._job = job
        self._claim = path.with_name(path.name + ".claim")
        self._command = shlex.join(sys.argv if command is None else command)
        self._descriptor: int | None = None
        self._claimed = False
        self._waits = False

    def __enter__(self) -> RunLock:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._acquire(self._descriptor)
        except OSError as error:
            self._close()
            raise HostError(Problem(what=f"the run cannot be locked: {error}", where=str(self._path))) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            # The file stays: removing it would let a waiting process lock a name that is no longer there.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        if self._claimed:
            self._claim.unlink(missing_ok=True)
        self._close()

    def _acquire(self, descriptor: int) -> None:
        end = time.monotonic() + self._wait_s
        try:
            while not _locked(descriptor):
                if time.monotonic() >= end:
                    raise _busy(self._path, read_holder(self._path))
                self._say_that_we_wait()
                time.sleep(_AGAIN_S)
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            self._claim_by_name()
        _write(descriptor, self._me())
        waiting_for(self._path).unlink(missing_ok=True)

    def _say_that_we_wait(self) -> None:
        """Let an earlier start of the same job, which may not know that it is over, see that it has to end."""
        if self._job is not None and not self._waits:
            self._waits = True
            write_json(waiting_for(self._path), asdict(self._me()))

    def _claim_by_name(self) -> None:
        for _ in range(2):
            try:
                claim = os.open(self._claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                holder = read_holder(self._claim)
                if holder is None or not (life_of(holder) == "dead" or self._is_our_past(holder)):
                    raise _busy(self._claim, holder, by_hand=True) from None
                self._claim.unlink(missing_ok=True)
            else:
                _write(claim, self._me())
                os.close(claim)
                self._claimed = True
                return
        raise _busy(self._claim, read_holder(self._claim), by_hand=True)

    def _is_our_past(self, holder: LockHolder) -> bool:
        """Whether the holder belongs to an earlier start of the job that this process belongs to."""
        if self._job is None or holder.job is None or holder.job == self._job:
            return False
        return holder.job.rpartition(".")[0] == self._job.rpartition(".")[0]

    def _me(self) -> LockHolder:
        pid = os.getpid()
        return LockHolder(
            host=socket.gethostname(),
            pid=pid,
            since=time.time(),
            command=self._command,
            mark=start_mark(pid),
            job=self._job,
        )

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(frozen=True, kw_only=True)
class Holding:
    """One look at a lock: nobody's (`free`), or of a process that lives, is dead, or cannot be seen from here."""

    life: Life
    holder: LockHolder | None = None


def holding(path: Path) -> Holding:
    """Look at a lock without touching it."""
    holder = read_holder(path)
    return Holding(life="free") if holder is None else Holding(life=life_of(holder), holder=holder)


def life_of(holder: LockHolder) -> Life:
    """Say whether the holder lives; a younger process under the same number is not the holder."""
    if holder.host != socket.gethostname():
        return "unknown"
    if holder.mark is not None and (mark := start_mark(holder.pid)) is not None:
        return "alive" if mark == holder.mark else "dead"
    try:
        process = psutil.Process(holder.pid)
        gone = process.status() == psutil.STATUS_ZOMBIE or process.create_time() > holder.since + 1
    except psutil.NoSuchProcess:
        return "dead"
    except psutil.AccessDenied:
        return "unknown"
    return "dead" if gone else "alive"


def waiting_for(path: Path) -> Path:
    """Return where a later start of the job that holds this lock says that it waits for it."""
    return path.with_name(f"{path.name}.waiting")


def read_holder(path: Path) -> LockHolder | None:
    """Return what the lock file says; None if it says nothing (free, or its holder is just writing it)."""
    data = read_json(path)
    try:
        return None if data is None else _holder_of(data)
    except (KeyError, ValueError, OverflowError, OSError):
        return None


def _holder_of(data: Mapping[str, object]) -> LockHolder:
    pid, since, mark = int(str(data["pid"])), float(str(data["since"])), data.get("mark")
    datetime.fromtimestamp(since)  # refuses what is no moment
    if pid <= 0:
        raise ValueError(f"not a process: {pid}")  # such numbers mean groups of processes to the kernel
    command, host, job = str(data["command"]), str(data["host"]), data.get("job")
    return LockHolder(
        host=host,
        pid=pid,
        since=since,
        command=command,
        mark=None if mark is None else str(mark),
        job=None if job is None else str(job),
    )


def _locked(descriptor: int) -> bool:
    """Take the lock if it is free; raises OSError where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, holder: LockHolder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(holder)).encode("utf-8"), 0)


def _busy(path: Path, holder: LockHolder | None, *, by_hand: bool = False) -> UserError:
    ways = "wait for it, stop it, or choose another run.name"
    if by_hand:
        ways += f"; if that process is gone, remove {path}"
    return UserError(
        Problem(
            key="run.name",
            what=f"another attempt is at work in {path.parent}: {holder or 'a process that has not named itself yet'}",
            hint=ways,
        )
    )
