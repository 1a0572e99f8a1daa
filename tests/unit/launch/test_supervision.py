"""What a launcher leaves in the node's memory: nothing, also of launchers before it that were killed."""

from __future__ import annotations

from pathlib import Path

from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import TimeoutsConfig
from primus_hydra.launch.supervision import Supervisor, clear_pulses
from primus_hydra.launch.watch import RankWatch
from primus_hydra.run.atomic import read_json
from primus_hydra.runtime.pulse import Pulse, pulse_folder
from primus_hydra.runtime.spec import AttemptSpec
from tests.support import make_job


def spec_of(tmp_path: Path, attempt: int) -> AttemptSpec:
    layout, _ = layout_of(make_job())
    assert layout is not None
    return AttemptSpec(
        run_dir=str(tmp_path), attempt=attempt, layout=layout, data=None, resume_from=None, backend_version="1.0"
    )


def test_pulses_that_killed_launchers_left_go_with_those_of_the_next_attempt(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        Pulse(spec_of(tmp_path, attempt).pulse(0))
    clear_pulses(spec_of(tmp_path, 2))

    there = [attempt for attempt in (1, 2, 3) if pulse_folder(str(tmp_path), attempt).exists()]
    clear_pulses(spec_of(tmp_path, 3))
    assert there == [3]


def test_an_attempt_lasts_as_long_as_it_lasts_whatever_becomes_of_the_clock(tmp_path, monkeypatch) -> None:
    spec = spec_of(tmp_path, 1)
    monkeypatch.setattr("time.time", lambda: 7200.0)
    supervisor = Supervisor(spec, TimeoutsConfig(), [RankWatch(0, spec.attempt_paths)])
    monkeypatch.setattr("time.time", lambda: 3600.0)
    supervisor.close()

    times = read_json(spec.attempt_paths.times)
    assert times is not None
    assert times["began"] == 7200.0
    assert 7200.0 <= times["ended"] < 7260.0
