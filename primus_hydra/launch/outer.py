"""Joining an outer torchrun or srun: it started one process per rank, and we become those ranks.

Rank 0 composes, prepares and publishes the attempt's spec; the others wait for it. The exchange goes through a TCP
store at `MASTER_ADDR:MASTER_PORT` in a process of its own (`launch.joined`), because it needs torch and this process
must not: what a rank exports has to be exported before torch is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from primus_hydra.config.layout import Layout
from primus_hydra.errors import ExitCode, HostError, PrimusError, Problem, UserError
from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent

EXCHANGE_MODULE = "primus_hydra.launch.joined"


@dataclass(frozen=True, kw_only=True)
class OuterLaunch:
    """This process among those that the outer launcher started."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int

    @property
    def is_main(self) -> bool:
        """Whether this process composes for all."""
        return self.rank == 0

    @property
    def single_node(self) -> bool:
        """Whether all ranks are on this node."""
        return self.local_world_size == self.world_size

    @property
    def variables(self) -> dict[str, str]:
        """The rank's own variables, complete also where the outer launcher left some out."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
        }


def outer_launch(environ: Mapping[str, str]) -> OuterLaunch | None:
    """Return the outer launch that this process is part of; None if nobody started us as a rank.

    Raises UserError where the variables are there but are not numbers.
    """
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environ.keys():
        return None
    world_size = _number(environ, "WORLD_SIZE")
    local_world_size = _first_number(environ, ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"), world_size)
    rank = _number(environ, "RANK")
    return OuterLaunch(
        rank=rank,
        world_size=world_size,
        local_rank=_first_number(environ, ("LOCAL_RANK", "SLURM_LOCALID"), rank % local_world_size),
        local_world_size=local_world_size,
        master_addr=environ["MASTER_ADDR"],
        master_port=_number(environ, "MASTER_PORT"),
    )


def check_world(outer: OuterLaunch, layout: Layout) -> None:
    """Raise UserError unless the outer launcher started as many ranks as the layout has."""
    if outer.world_size == layout.world_size:
        return
    raise UserError(
        Problem(
            key="parallel",
            what=f"the outer launcher started {outer.world_size} ranks, but this job has {layout.world_size} "
            f"({layout.nodes} node(s) with {layout.ranks_per_node} each)",
            hint=f"start {layout.world_size} processes, or change parallel.* and launch.* to {outer.world_size} ranks",
        )
    )


class Publication:
    """Tells the other ranks how to go on, whatever happens to rank 0: use it as a context manager around rank 0's work.

    `spec(path)` publishes the attempt. Leaving without it publishes the exit code that the others end with.
    Entering starts the exchange, so that its import of torch overlaps the composition.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        given = os.environ if environ is None else environ
        # The exchange outlives a rank 0 that dies, to tell the others: it is not tied to a parent.
        self._environ = {name: value for name, value in given.items() if name != PARENT_VARIABLE}
        self._exchange: subprocess.Popen[str] | None = None

    def __enter__(self) -> Publication:
        _tie_to_outer_launcher()
        self._exchange = subprocess.Popen(
            exchange_argv("publish"),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environ,
            start_new_session=True,
        )
        return self

    @contextlib.contextmanager
    def shared(self) -> Iterator[Publication]:
        """Offer this publication to `current_publication` while the block runs."""
        token = _publication.set(self)
        try:
            yield self
        finally:
            _publication.reset(token)

    def spec(self, path: Path) -> None:
        """Publish an attempt and wait until every rank has it; raises HostError if they do not come."""
        self._send({"spec": str(path.absolute())})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exchange is None:
            return
        try:
            self._send({"exit_code": _exit_code(error), "message": str(error) if error else None})
        except HostError:
            if error is None:
                raise

    def _send(self, message: Mapping[str, object]) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            raise RuntimeError("this publication is over")
        _, errors = exchange.communicate(json.dumps(message))
        if exchange.returncode != 0:
            last = errors.strip().rpartition("\n")[2] or f"the exchange ended with code {exchange.returncode}"
            raise HostError(Problem(what=f"the other ranks could not be reached: {last}", key="MASTER_ADDR"))


_publication: ContextVar[Publication | None] = ContextVar("primus_hydra_publication", default=None)


def current_publication() -> Publication | None:
    """Return the publication of this process, or None where no outer launcher started it."""
    return _publication.get()


def follow() -> NoReturn:
    """Become the process that waits for rank 0's word and then runs this rank; for every rank but 0."""
    argv = exchange_argv("follow")
    _tie_to_outer_launcher()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)


def exchange_argv(role: str) -> list[str]:
    """Return the command of the exchange process; `role` is publish or follow."""
    return [*python_argv(), "-m", EXCHANGE_MODULE, role]


def python_argv() -> list[str]:
    """Return the interpreter with the import path of this process: the working directory only if we have it too."""
    here = {"", str(Path.cwd())} & set(sys.path)
    return [sys.executable] if here and not sys.flags.safe_path else [sys.executable, "-P"]


def _tie_to_outer_launcher() -> None:
    # torchrun may be killed without a chance to end its processes; without its store they would wait for minutes.
    os.environ[PARENT_VARIABLE] = str(os.getppid())
    die_with_parent()


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return int(ExitCode.DONE)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, KeyboardInterrupt):
        return int(ExitCode.INTERRUPTED)
    return int(error.exit_code) if isinstance(error, PrimusError) else int(ExitCode.BUG)


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        problem = Problem(key=name, what=f"the outer launcher set it to {environ[name]!r}, which is no whole number")
        raise UserError(problem) from None


def _first_number(environ: Mapping[str, str], names: Sequence[str], otherwise: int) -> int:
    return next((_number(environ, name) for name in names if name in environ), otherwise)
