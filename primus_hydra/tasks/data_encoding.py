"""Parts of a job's text through the processes that encode them, with progress, for what writes and what counts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.check import check_data, check_settings, missing_on_host
from primus_hydra.data.parts import Part, size_of
from primus_hydra.data.prepare import TextPreparation
from primus_hydra.data.problem_log import Fault
from primus_hydra.errors import HostError, Problem, UserError, raise_all
from primus_hydra.host.cores import read_cores
from primus_hydra.tasks.data_pool import Pool, Progress, Request
from primus_hydra.ui.portion import PortionView
from primus_hydra.ui.words import amount, duration

_PARTS_PER_WORKER: Final = 4
_SMALLEST_PART: Final = 1 << 20
_SHOWN: Final = 20


def open_text(job: JobConfig, view: PortionView, *, strict: bool) -> TextPreparation:
    """Open the text of a job; raises UserError for data that are not text or are wrong, HostError for a library."""
    if job.data.kind in ("mock", "megatron", "stream"):
        what = f"{job.data.kind} data are tokens already: there is no text to prepare"
        raise UserError(Problem(key="data.kind", what=what, hint="set data=text data.path=FILES, or data=hf"))
    raise_all(check_data(job) if strict else check_settings(job))
    if missing := missing_on_host(job):
        raise HostError(*missing)
    return TextPreparation(job, view.say, tolerant=not strict)


def worker_count(wanted: int | Literal["auto"]) -> int:
    """Return how many processes encode: as asked for, or one for each CPU that this process may keep busy."""
    if wanted != "auto":
        return wanted
    cores = read_cores()
    return max(1, min(cores.logical, int(cores.quota) if cores.quota is not None else cores.logical))


def part_bytes(text_bytes: int, workers: int, part_mib: float) -> int:
    """Return how much text a part has: less than asked for, where the processes would not all have work."""
    fair = max(_SMALLEST_PART, text_bytes // (workers * _PARTS_PER_WORKER))
    return max(1, min(int(part_mib * 2**20), fair))


def encode(
    pool: Pool, view: PortionView, parts: Sequence[Part], todo: Sequence[int], folders: Sequence[str | None]
) -> Iterator[Progress]:
    """Encode the parts of `todo` into `folders`; yield each as it is done, and show how far all of them are."""
    requests = [
        Request(part=number, pieces=[piece.to_row() for piece in parts[number]], folder=folder)
        for number, folder in zip(todo, folders, strict=True)
    ]
    meter = _Meter(parts, todo, view)
    for said in pool.run(requests):
        meter.take(said)
        if said.outcomes is not None:
            yield said


def tell_faults(view: PortionView, faults: Sequence[Fault], told: int) -> int:
    """Show the first faults of a preparation, of which `told` were shown before; return how many are shown now."""
    for fault in faults[: max(0, _SHOWN - told)]:
        place = fault.file if fault.line is None else f"{fault.file}:{fault.line}"
        view.say(f"passed over {place}: {fault.reason}")
    if told < _SHOWN < told + len(faults):
        view.say("more is passed over, and listed at the end")
    return told + len(faults)


def refuse_faults(faults: Sequence[Fault]) -> None:
    """Raise UserError with the first faults, if there is one."""
    more = len(faults) - _SHOWN
    cut = [Problem(what=f"and {more} more in this part of the text")] if more > 0 else []
    if faults:
        raise UserError(*(fault.as_problem() for fault in faults[:_SHOWN]), *cut)


class _Meter:
    """Adds up what is done, by the guessed sizes of the parts, and the rate of what is seen."""

    def __init__(self, parts: Sequence[Part], todo: Sequence[int], view: PortionView) -> None:
        self._sizes = {number: max(1, size_of(part)) for number, part in enumerate(parts)}
        self._total = sum(self._sizes.values())
        self._done = self._total - sum(self._sizes[number] for number in todo)
        self._todo = self._total - self._done
        self._going: dict[int, Progress] = {}
        self._text_bytes = self._tokens = 0
        self._began = time.monotonic()
        self._view = view

    def take(self, said: Progress) -> None:
        before = self._going.get(said.part)
        if said.outcomes is None:
            self._text_bytes += said.text_bytes - (before.text_bytes if before else 0)
            self._tokens += said.tokens - (before.tokens if before else 0)
            self._going[said.part] = said
        else:
            self._going.pop(said.part, None)
            self._done += self._sizes[said.part]
        going = sum(min(one.text_bytes, self._sizes[one.part]) for one in self._going.values())
        self._view.update((self._done + going) / self._total, self._words(self._done + going))

    def _words(self, done: int) -> str:
        spent = max(time.monotonic() - self._began, 1e-6)
        here = done - (self._total - self._todo)
        left = duration(spent * (self._total - done) / here) if here > 0 else "?"
        return f"{amount(self._tokens / spent)} tokens/s, left {left}"


def free_gib(folder: str) -> float:
    """Return the room on the disk of a folder, in GiB."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize / 2**30
