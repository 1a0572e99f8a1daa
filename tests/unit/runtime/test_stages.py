"""The stages of a start: noted by several processes, read in the order of time."""

from __future__ import annotations

from pathlib import Path

from primus_hydra.runtime.pulse import Pulse
from primus_hydra.runtime.stages import Stages, read_stages


def test_the_stages_of_all_processes_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    agent, rank = Stages(tmp_path / "node", "agent"), Stages(tmp_path / "node", "rank-1", restart=2)
    agent.reached("started")
    rank.reached("first step")
    agent.reached("ended")

    found = [(item.who, item.restart, item.stage) for item in read_stages(tmp_path / "node")]

    assert found == [("agent", 0, "started"), ("rank-1", 2, "first step"), ("agent", 0, "ended")]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    Stages(tmp_path, "agent").reached("started")
    with (tmp_path / "stages-agent").open("a") as file:
        file.write("0 12")

    assert [item.stage for item in read_stages(tmp_path)] == ["started"]


def test_a_stage_that_cannot_be_noted_is_no_error() -> None:
    Stages(Path("/proc/none"), "agent").reached("started")

    assert read_stages(Path("/proc/none")) == []


def test_a_rank_tells_of_its_load_and_its_first_step_once(tmp_path: Path) -> None:
    reached: list[str] = []
    pulse = Pulse(tmp_path / "rank-0", reached.append)
    with pulse.section("checkpoint"):
        pass
    with pulse.section("checkpoint"):
        pass
    pulse.beat(1)
    with pulse.section("checkpoint"):
        pulse.beat(2)

    assert reached == ["loading", "loaded", "stepped"]


def test_a_rank_that_loads_nothing_does_not_call_its_first_save_a_load(tmp_path: Path) -> None:
    reached: list[str] = []
    pulse = Pulse(tmp_path / "rank-0", reached.append)
    pulse.beat(1)
    with pulse.section("checkpoint"):
        pass

    assert reached == ["stepped"]
