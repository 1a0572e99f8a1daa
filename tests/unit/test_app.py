"""The front of the command: flags, help, version, and what goes to Hydra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from primus_hydra.app import run_command
from primus_hydra.config.key_table import job_rows
from primus_hydra.config.options import group_options, own_folders
from primus_hydra.ui.help_text import TOUCHED, help_text

Screen = pytest.CaptureFixture[str]


def test_help_fits_on_a_screen_and_names_every_group_option_and_key_it_should() -> None:
    options = group_options(own_folders())
    text = help_text(options)
    lines = text.splitlines()

    assert len(lines) <= 50
    assert max(map(len, lines)) <= 120
    assert all(option.name in text for group in options.values() for option in group)
    assert all(job_rows()[key].doc in text for key in TOUCHED)
    assert len(TOUCHED) == 10
    assert "_values" not in text


def test_help_shows_options_of_a_folder_of_the_users(tmp_path: Path, capsys: Screen) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("name: mine\n")

    assert run_command(["--help", "--config-dir", str(tmp_path)]) == 0
    assert "mine" in capsys.readouterr().out


def test_help_and_completion_import_neither_hydra_nor_torch() -> None:
    code = (
        "import sys\n"
        "from primus_hydra.answers import quick_answer\n"
        "codes = [quick_answer(argv) for argv in (['--help'], ['--complete', 'optim'], ['--completion', 'bash'],"
        " ['--version'], ['--complete', 'task=plan', 'task.format='])]\n"
        "assert codes == [0] * 5, codes\n"
        "assert not {'torch', 'hydra', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""


def test_the_version_is_ours(capsys: Screen) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("primus-hydra 0.")


@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        (["-sc", "install=bash"], "--completion bash"),
        (["--config-path", "somewhere"], "--config-dir"),
        (["--experimental-rerun", "job.pickle"], "the same command is the same run"),
        (["--cfg", "jobs"], "invalid choice: 'jobs'"),
        (["--config-dir"], "expected one argument"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--completion", "fish"], "no completion for 'fish'"),
        (["--completion"], "needs the name of a shell"),
    ],
)
def test_a_wrong_flag_is_refused_with_a_way_out(argv: list[str], answer: str, capsys: Screen) -> None:
    assert run_command(argv) == 2
    told = capsys.readouterr()
    assert answer in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--cfg", "job", "optimizer.lr=7e-4"], "lr: 0.0007"),
        (["--info", "searchpath"], "primus_hydra.conf"),
        (["--info", "defaults"], "llama3_tiny"),
        (["optimizer.lr=1e-4", "--info"], "Config search path"),
    ],
)
def test_what_hydra_serves_still_works(argv: list[str], shown: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "primus_hydra", *argv], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert shown in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_flags_and_overrides_come_in_any_order(capsys: Screen) -> None:
    for argv in (["task=help", "--config-name", "config", "platform=cpu"], ["--config-name", "config", "task=help"]):
        assert run_command(argv) == 0
    assert "optimizer" in capsys.readouterr().out


def test_points_that_no_machine_could_lay_out_are_skipped_and_listed(capsys: Screen) -> None:
    argv = ["-m", "platform=cpu", "task=plan", "task.show=parallel.tp", "parallel.tp=1,3"]
    assert run_command(argv) == 0
    told = capsys.readouterr()

    assert "skipped point parallel.tp=3" in told.err
    assert "parallel.tp=1" in told.out


def test_a_sweep_of_nothing_but_impossible_layouts_is_refused(capsys: Screen) -> None:
    assert run_command(["-m", "platform=cpu", "task=plan", "parallel.tp=3,5"]) == 2
    told = capsys.readouterr()
    assert "point parallel.tp=3" in told.err
    assert "point parallel.tp=5" in told.err


def test_wrong_points_of_a_sweep_are_all_told_and_what_they_share_once(capsys: Screen) -> None:
    argv = ["-m", "platform=cpu", "task=plan", "optimizer.lr=fast", "training.steps=1,few,some"]
    assert run_command(argv) == 2
    told = capsys.readouterr().err

    assert told.count("not the text 'fast'") == 1
    for wrong in ("few", "some"):
        assert f"(point training.steps={wrong})" in told.replace("'", "")
