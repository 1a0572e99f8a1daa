"""A rank's heartbeat: what a reader of the same node sees, at any moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from primus_hydra.runtime.pulse import NoPulse, Pulse, pulse_folder, read_beat


def test_a_rank_begins_in_its_startup(tmp_path: Path) -> None:
    Pulse(tmp_path / "folder" / "rank-0")
    beat = read_beat(tmp_path / "folder" / "rank-0")

    assert beat is not None
    assert (beat.section, beat.step, beat.pid) == ("startup", -1, os.getpid())
    assert 0 <= time.monotonic() - beat.at_s < 5


def test_the_first_finished_step_ends_the_startup(tmp_path: Path) -> None:
    pulse = Pulse(tmp_path / "rank-0")
    pulse.beat()
    assert _section(tmp_path) == ("startup", -1)
    pulse.beat(1)
    assert _section(tmp_path) == ("step", 1)
    pulse.beat(2)
    assert _section(tmp_path) == ("step", 2)


def test_a_section_ends_with_its_block_also_after_an_error(tmp_path: Path) -> None:
    pulse = Pulse(tmp_path / "rank-0")
    pulse.beat(3)
    with pytest.raises(OSError, match="full"):
        _fail_in_a_save(pulse, tmp_path)
    assert _section(tmp_path) == ("step", 3)


def test_a_load_before_the_first_step_goes_back_to_the_startup(tmp_path: Path) -> None:
    pulse = Pulse(tmp_path / "rank-0")
    with pulse.section("checkpoint"):
        pass
    assert _section(tmp_path) == ("startup", -1)


def test_the_time_of_every_section_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pulse = Pulse(tmp_path / "rank-0")
    now[0] += 7
    pulse.beat(1)
    now[0] += 2
    with pulse.section("checkpoint"):
        now[0] += 5
    now[0] += 1
    pulse.beat(2)
    beat = read_beat(tmp_path / "rank-0")

    assert beat is not None
    spent = beat.spent(now[0] + 4)
    assert (spent["startup"], spent["step"], spent["checkpoint"], spent["validation"]) == (7, 7, 5, 0)


def test_a_torn_or_foreign_file_is_no_beat(tmp_path: Path) -> None:
    (tmp_path / "rank-0").write_bytes(b"half")
    assert read_beat(tmp_path / "rank-0") is None
    assert read_beat(tmp_path / "rank-1") is None
    Pulse(tmp_path / "rank-2")
    (tmp_path / "rank-2").write_bytes(bytes((tmp_path / "rank-2").stat().st_size))
    assert read_beat(tmp_path / "rank-2") is None


def test_a_record_that_is_being_written_does_not_hide_the_one_before(tmp_path: Path) -> None:
    pulse = Pulse(tmp_path / "rank-0")
    pulse.beat(8)
    data = bytearray((tmp_path / "rank-0").read_bytes())
    half = len(data) // 2
    newest = 0 if int.from_bytes(data[:8], "little") > int.from_bytes(data[half : half + 8], "little") else half
    older = half - newest
    data[older + 8 : older + half] = b"\xff" * (half - 8)  # all but its number, which is written last
    (tmp_path / "rank-0").write_bytes(bytes(data))

    beat = read_beat(tmp_path / "rank-0")
    assert beat is not None
    assert beat.step == 8


def test_runs_and_attempts_beat_apart() -> None:
    assert len({pulse_folder("/a", 1), pulse_folder("/a", 2), pulse_folder("/b", 1)}) == 3


def test_no_pulse_keeps_the_words() -> None:
    with NoPulse().section("checkpoint"):
        NoPulse().beat(1)


def _fail_in_a_save(pulse: Pulse, folder: Path) -> None:
    with pulse.section("checkpoint"):
        assert _section(folder) == ("checkpoint", 3)
        raise OSError("full")


def _section(folder: Path) -> tuple[str, int]:
    beat = read_beat(folder / "rank-0")
    assert beat is not None
    return beat.section, beat.step
