"""A disk that cannot hold the run is the machine's fault, named with the place, and not a bug."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from primus_hydra.errors import HostError
from primus_hydra.run.storage import run_storage


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_or_read_only_disk_is_named(number: int, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="run directory cannot be written"), run_storage(tmp_path / "run"):
        raise OSError(number, "it cannot be")


def test_a_plain_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    root = tmp_path / "runs" / "mine"

    with pytest.raises(HostError) as caught, run_storage(root):
        root.mkdir(parents=True)

    assert caught.value.problems[0].key == "run.dir"
    assert str(tmp_path / "runs") in (caught.value.problems[0].where or "")


def test_an_error_about_something_else_passes(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), run_storage(tmp_path / "run"):
        Path("/nowhere/at/all").read_text()
