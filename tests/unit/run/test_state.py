"""The state of a run survives whatever happens to its writer."""

import dataclasses
import errno
from pathlib import Path

import pytest

from primus_hydra.run import state as module
from primus_hydra.run.state import RunState, read_state, write_state

STATE = RunState(status="saved", step=7, steps=20, attempt=2, started_at=1.5, updated_at=2.5, exit_code=75, message="m")


@pytest.mark.parametrize("state", [STATE, dataclasses.replace(STATE, exit_code=None, message=None, status="running")])
def test_a_state_is_read_as_it_was_written(tmp_path, state):
    write_state(tmp_path / "state.json", state)
    assert read_state(tmp_path / "state.json") == state


def refuse_with(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: object) -> None:
        raise OSError(number, "refused", str(path))

    monkeypatch.setattr(module, "write_json", refuse)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_takes_the_last_state_in_the_place_of_the_one_before(number, tmp_path, monkeypatch):
    write_state(tmp_path / "state.json", dataclasses.replace(STATE, status="running", message="a" * 200))
    refuse_with(number, monkeypatch)

    write_state(tmp_path / "state.json", STATE)
    assert read_state(tmp_path / "state.json") == STATE
    with pytest.raises(OSError, match="refused"):
        write_state(tmp_path / "absent.json", STATE)


def test_a_state_that_cannot_be_written_for_another_reason_stays_as_it_was(tmp_path, monkeypatch):
    write_state(tmp_path / "state.json", STATE)
    refuse_with(errno.EROFS, monkeypatch)

    with pytest.raises(OSError, match="refused"):
        write_state(tmp_path / "state.json", dataclasses.replace(STATE, step=8))
    assert read_state(tmp_path / "state.json") == STATE


@pytest.mark.parametrize("text", ["", "{", "{}", '{"status": "sleeping", "step": 1}'])
def test_what_is_not_a_state_reads_as_none(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert read_state(tmp_path / "state.json") is None
    assert read_state(tmp_path / "absent.json") is None
