"""Whether an outer launcher started this process, and as which rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.errors import UserError
from primus_hydra.launch.outer import outer_launch, python_argv

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "head",
    "MASTER_PORT": "29500",
}


def test_torchrun_is_recognised():
    outer = outer_launch(TORCHRUN)
    assert outer is not None
    assert outer.variables == TORCHRUN
    assert not outer.is_main
    assert not outer.single_node


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_part_of_the_variables_is_no_launch(missing: str):
    assert outer_launch({name: value for name, value in TORCHRUN.items() if name != missing}) is None


def test_srun_may_leave_the_local_numbers_to_slurm():
    environ = {name: value for name, value in TORCHRUN.items() if not name.startswith("LOCAL")}
    outer = outer_launch({**environ, "SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "4"})
    assert outer is not None
    assert (outer.local_rank, outer.local_world_size) == (1, 4)


def test_a_variable_that_is_no_number_is_named():
    with pytest.raises(UserError, match="MASTER_PORT"):
        outer_launch({**TORCHRUN, "MASTER_PORT": "auto"})


def test_a_rank_imports_from_the_working_folder_only_if_the_launcher_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "-P" in python_argv()
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert "-P" not in python_argv()
