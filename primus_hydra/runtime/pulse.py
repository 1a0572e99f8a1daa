"""The heartbeat of a rank: where it is (section and step) and since when, in a few bytes of this node's memory.

Written by the rank at every change and read by the launcher of the same node, so it must cost nothing and touch no
shared file system. Times are of CLOCK_MONOTONIC, which all processes of a node share and nobody can set back.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, ParamSpec, Protocol, TypeVar, get_args

P = ParamSpec("P")
R = TypeVar("R")
Section = Literal["startup", "step", "checkpoint", "validation", "ending"]
SECTIONS: Final[tuple[Section, ...]] = get_args(Section)
_RECORD: Final = struct.Struct(f"<qqqddq{len(SECTIONS)}d")
"""Number, process id, section, time of this beat, time when the section began, step, seconds in ended sections."""
_SIZE: Final = 2 * _RECORD.size
_STAGES: Final[Mapping[str, str]] = {"checkpoint": "loading", "startup": "loaded", "step": "stepped"}
"""What the first change to a section means, up to the first finished step."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One look at a rank: seconds are of CLOCK_MONOTONIC; `step` counts finished steps, -1 before it is known."""

    pid: int
    section: Section
    step: int
    at_s: float
    section_began_s: float
    ended: Mapping[Section, float]

    def spent(self, until_s: float) -> dict[Section, float]:
        """Return the seconds in each section so far, the present one counted until then."""
        going_on = {self.section: max(0.0, until_s - self.section_began_s)}
        return {section: self.ended[section] + going_on.get(section, 0.0) for section in SECTIONS}


class PulseWriter(Protocol):
    """What a trainer tells of itself."""

    def beat(self, step: int | None = None) -> None:
        """Say that there was progress; with a step, that so many are finished."""

    def section(self, name: Section) -> contextlib.AbstractContextManager[None]:
        """Be in a section until the block ends."""


class NoPulse:
    """Tells nobody."""

    def beat(self, step: int | None = None) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def section(self, name: Section) -> Iterator[None]:
        """Do nothing."""
        yield


class Pulse:
    """The writing end, in the rank. Two records take turns, so that a reader always finds a whole one."""

    def __init__(self, path: Path, reached: Callable[[str], None] | None = None) -> None:
        """Begin in section `startup`; raises OSError if the file cannot be made.

        `reached` is told the stages up to the first finished step: `loading`, `loaded`, `stepped`.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._map = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._reached = reached or (lambda stage: None)
        self._stages = dict(_STAGES)
        self._number = 0
        self._step = -1
        self._section: Section = "startup"
        self._began = time.monotonic()
        self._ended = dict.fromkeys(SECTIONS, 0.0)
        self.beat()

    def beat(self, step: int | None = None) -> None:
        """Say that there was progress; the first finished step also ends the start-up."""
        if step is not None:
            self._step = step
            if self._section == "startup":
                self._change("step")
        self._write()

    @contextlib.contextmanager
    def section(self, name: Section) -> Iterator[None]:
        """Be in a section until the block ends; the one before goes on then."""
        before = self._section
        self._change(name)
        self._write()
        try:
            yield
        finally:
            self._change("step" if before == "startup" and self._step >= 0 else before)
            self._write()

    def _change(self, section: Section) -> None:
        now = time.monotonic()
        self._ended[self._section] += now - self._began
        self._section, self._began = section, now
        stage = self._stages.pop(section, None)
        if stage is not None and "step" in {section, *self._stages}:
            self._reached(stage)

    def _write(self) -> None:
        self._number += 1
        record = _RECORD.pack(
            self._number,
            os.getpid(),
            SECTIONS.index(self._section),
            time.monotonic(),
            self._began,
            self._step,
            *self._ended.values(),
        )
        place = (self._number % 2) * _RECORD.size
        # The number comes last: a record whose number is old is not read.
        self._map[place + 8 : place + _RECORD.size] = record[8:]
        self._map[place : place + 8] = record[:8]


def in_section(pulse: PulseWriter, name: Section, function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, during which a rank is in a section."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with pulse.section(name):
            return function(*args, **kwargs)

    return inside


def read_beat(path: Path) -> Beat | None:
    """Return the newest beat of a rank, None while there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) != _SIZE:
        return None
    records = [_RECORD.unpack_from(data, place) for place in (0, _RECORD.size)]
    number, pid, section, at, began, step, *ended = max(records)
    if number == 0 or not 0 <= section < len(SECTIONS):
        return None
    return Beat(
        pid=pid,
        section=SECTIONS[section],
        step=step,
        at_s=at,
        section_began_s=began,
        ended=dict(zip(SECTIONS, ended, strict=True)),
    )


def pulse_folder(run_dir: str, attempt: int, node: int = 0) -> Path:
    """Return where the ranks of this node beat: in memory where the node has a file system for it.

    Nodes of one job that share their memory (containers of one machine) keep apart by their number.
    """
    from hashlib import blake2b
    from tempfile import gettempdir

    memory = Path("/dev/shm")
    root = memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(gettempdir())
    name = blake2b(f"{run_dir}\0{attempt}\0{node}".encode(), digest_size=8).hexdigest()
    return root / f"primus-hydra-{os.getuid()}-{name}"
