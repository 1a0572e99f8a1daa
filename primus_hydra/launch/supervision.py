"""Watches the pulses of this node's ranks: one small file for people, and an end to a hang.

On a hang the stacks of all ranks are dumped before anything is ended, and the ranks that the others wait for are named.
With several nodes each dumps those of its own ranks; the one that found the hang reads them in the run's folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from primus_hydra.config.schema import TimeoutsConfig
from primus_hydra.launch.hang import Hang, find_stuck, late_ranks
from primus_hydra.launch.watch import RankWatch
from primus_hydra.run.atomic import read_json, write_json, write_text
from primus_hydra.runtime.pulse import Beat, Section, pulse_folder, read_beat
from primus_hydra.runtime.signals import DUMP_SIGNAL
from primus_hydra.runtime.spec import AttemptSpec, this_node
from primus_hydra.runtime.stages import read_stages

LOOK_EVERY_S = 0.5
TELL_EVERY_S = 5.0
DUMP_LIMIT_S = 5.0
"""How long ranks may take to write their stacks; one in a system call that nothing interrupts writes none."""


class Supervisor:
    """Looks at the ranks that one launcher watches; `hang` is the last one that was found.

    `tell` lets the launchers of other nodes know in which start of the ranks one was found here.
    """

    def __init__(
        self,
        spec: AttemptSpec,
        timeouts: TimeoutsConfig,
        ranks: Sequence[RankWatch],
        *,
        tell: Callable[[int], None] | None = None,
    ) -> None:
        self._spec = spec
        self._timeouts = timeouts
        self._ranks = ranks
        self._looked = self._told = 0.0
        self._began, self._began_s = time.time(), time.monotonic()
        self._starts: dict[int, dict[Section, float]] = {}
        first = ranks[0].rank
        self._name = f"rank-{first}" if spec.joined else f"node-{spec.node_of(first)}"
        self.hang: Hang | None = None
        self.hung_restart: int | None = None
        self._tell_others = tell
        self._seen_in: int | None = None
        self._stacks: Mapping[int, str] = {}

    def look(self) -> Hang | None:
        """Return a hang that has just been found; its evidence is on disk by then."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return None
        self._looked = now
        beats = self._beats()
        self._account()
        if now - self._told > TELL_EVERY_S:
            self._told = now
            self._tell(beats)
        late = late_ranks(beats, self._timeouts)
        if not late or self._restart == self.hung_restart:
            return None
        if self._tell_others is not None:
            self._tell_others(self._restart)
        self._look_closely(beats)
        of_others = self._others() if self._tell_others is not None else {}
        stacks = {**self._stacks, **{rank: text for rank, (_, text) in of_others.items() if text}}
        steps = {rank: beat.step for rank, beat in beats.items()} | {
            rank: step for rank, (step, _) in of_others.items()
        }
        self.hang = Hang(late=tuple(late), stuck=find_stuck(steps, stacks), stacks=stacks)
        self.hung_restart = self._restart
        self._keep(self.hang)
        return self.hang

    def witness(self, restart: int) -> None:
        """Leave evidence of a hang that another node has found; nothing to do if these ranks were started again."""
        if restart == self._restart != self._seen_in:
            self._look_closely(self._beats())

    @property
    def _restart(self) -> int:
        return max((rank.restarts for rank in self._ranks), default=0)

    def _look_closely(self, beats: Mapping[int, Beat]) -> None:
        """Dump the stacks of the ranks here, once in each start, and say that they are there."""
        if self._seen_in == self._restart:
            return
        self._stacks = self._dump(beats)
        paths = self._spec.attempt_paths
        with contextlib.suppress(OSError):
            for rank, stack in self._stacks.items():
                paths.stacks(rank).parent.mkdir(parents=True, exist_ok=True)
                write_text(paths.stacks(rank), stack)
        self._seen_in = self._restart
        self._tell(beats)

    def _others(self) -> dict[int, tuple[int, str]]:
        """Return step and stack (empty where it has none) of the ranks of other nodes, waited for as for those here."""
        paths = self._spec.attempt_paths
        names = {f"node-{number}" for number in range(self._spec.layout.nodes)} - {self._name}
        end = time.monotonic() + DUMP_LIMIT_S + LOOK_EVERY_S
        found: dict[int, tuple[int, str]] = {}
        while names and time.monotonic() < end:
            for name in sorted(names):
                said = read_json(paths.node(name)) or {}
                ranks_there = said.get("ranks")
                if said.get("hang") == self._restart and isinstance(ranks_there, dict):
                    names.discard(name)
                    ranks = {int(rank): int(look["step"]) for rank, look in ranks_there.items()}
                    found |= {rank: (step, _read_from(paths.stacks(rank), 0)) for rank, step in ranks.items()}
            time.sleep(0.1)
        return found

    def close(self) -> None:
        """Leave the last word for people, and nothing in memory."""
        self._account()
        self._tell(self._beats())
        clear_pulses(self._spec)

    def _beats(self) -> dict[int, Beat]:
        found = ((rank, read_beat(self._spec.pulse(rank.rank))) for rank in self._ranks if rank.alive)
        return {rank.rank: beat for rank, beat in found if beat is not None and beat.pid == rank.pid}

    def _account(self) -> None:
        """Note the time of the first rank in each section, also of one that is gone by now."""
        first = self._ranks[0]
        beat = read_beat(self._spec.pulse(first.rank))
        if beat is not None and beat.pid == first.pid:
            self._starts[first.restarts] = beat.spent(time.monotonic() if first.alive else beat.at_s)

    def _tell(self, beats: Mapping[int, Beat]) -> None:
        now = time.monotonic()
        ranks = {
            str(rank): {"section": beat.section, "step": beat.step, "silent_s": round(now - beat.at_s, 1)}
            for rank, beat in beats.items()
        }
        path = self._spec.attempt_paths.node(self._name)
        with contextlib.suppress(OSError):  # a full disk is told by what matters more
            write_json(path, {"time": time.time(), "ranks": ranks, "hang": self._seen_in})
            if self._ranks[0].rank == 0:
                write_json(self._spec.attempt_paths.times, self._times())

    def _times(self) -> dict[str, object]:
        starts = [{"restart": number, "spent": spent} for number, spent in sorted(self._starts.items())]
        stages = [
            {**asdict(reached), "at_s": round(reached.at_s - self._began_s, 3)}
            for reached in read_stages(self._spec.pulses(0))
        ]
        return {
            "began": self._began,
            "ended": self._began + time.monotonic() - self._began_s,
            "starts": starts,
            "stages": stages,
        }

    def _dump(self, beats: Mapping[int, Beat]) -> dict[int, str]:
        logs = {rank: self._spec.paths.rank_log(rank) for rank in beats}
        ends = {rank: _size(log) for rank, log in logs.items()}
        for rank in self._ranks:
            if rank.rank in beats and rank.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, DUMP_SIGNAL)
        end = time.monotonic() + DUMP_LIMIT_S
        stacks: dict[int, str] = {}
        while len(stacks) < len(logs) and time.monotonic() < end:
            time.sleep(0.2)
            stacks = {rank: text for rank, log in logs.items() if (text := _read_from(log, ends[rank])).strip()}
        return stacks

    def _keep(self, hang: Hang) -> None:
        paths = self._spec.attempt_paths
        with contextlib.suppress(OSError):
            late = [asdict(item) for item in hang.late]
            write_json(paths.hang, {"what": hang.describe(), "stuck": list(hang.stuck), "late": late})


def clear_pulses(spec: AttemptSpec) -> None:
    """Remove the pulses of an attempt from this node's memory, also those that killed launchers before it left."""
    for attempt in range(1, spec.attempt + 1):
        shutil.rmtree(pulse_folder(spec.run_dir, attempt, this_node()), ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_from(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
