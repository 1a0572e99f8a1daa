"""A full disk is said before a save, not during it."""

import shutil

from primus_hydra.run.space import space_problem


def test_enough_space_is_no_problem_even_for_a_folder_that_does_not_exist_yet(tmp_path):
    assert space_problem(tmp_path / "not" / "yet", 1) is None


def test_too_little_space_names_both_amounts(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**12, 10**12, 3 * 1024**3))
    problem = space_problem(tmp_path / "checkpoints", 5 * 1024**3)
    assert "5.00 GiB are needed and 3.00 GiB are free" in problem.what
