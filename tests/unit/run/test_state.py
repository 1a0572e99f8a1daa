"""The state of a run survives whatever happens to its writer."""

import dataclasses

import pytest

from primus_hydra.run.state import RunState, read_state, write_state

STATE = RunState(status="saved", step=7, steps=20, attempt=2, started_at=1.5, updated_at=2.5, exit_code=75, message="m")


@pytest.mark.parametrize("state", [STATE, dataclasses.replace(STATE, exit_code=None, message=None, status="running")])
def test_a_state_is_read_as_it_was_written(tmp_path, state):
    write_state(tmp_path / "state.json", state)
    assert read_state(tmp_path / "state.json") == state


@pytest.mark.parametrize("text", ["", "{", "{}", '{"status": "sleeping", "step": 1}'])
def test_what_is_not_a_state_reads_as_none(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert read_state(tmp_path / "state.json") is None
    assert read_state(tmp_path / "absent.json") is None
