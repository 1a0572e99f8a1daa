"""`task=help`: the schema's words, and the values of this command."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.app import run_command
from primus_hydra.config.key_table import job_nodes


def explained(capsys: pytest.CaptureFixture[str], key: str | None, *overrides: str) -> str:
    asked = [] if key is None else [f"task.key={key}"]
    assert run_command(["platform=cpu", "task=help", *asked, *overrides]) == 0
    return capsys.readouterr().out


def test_a_key_is_explained_with_its_value_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "optimizer.lr", "optimizer.lr=1e-3")

    for words in ("Peak learning rate.", "float", "> 0", "0.0003", "0.001    from override 4: optimizer.lr=1e-3"):
        assert words in text


def test_a_node_lists_its_keys_with_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "training")

    assert "training.seq_length = 256" in text
    assert "in tokens" in text
    assert "optimizer.lr" not in text


def test_a_node_names_the_nodes_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "model.rope_scaling.*" in explained(capsys, "model")
    assert "model.rope_scaling.factor = 1.0" in explained(capsys, "model.rope_scaling")


def test_a_group_lists_its_options_and_the_chosen_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "platform")

    assert "options of the group platform (here: cpu)" in text
    assert "platform=mi300x" in text


def test_a_group_of_the_users_is_listed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# A model of mine.\nname: mine\n")

    text = explained(capsys, "model", "--config-dir", str(tmp_path))
    assert "A model of mine." in text


def test_tasks_are_explained_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "task")

    assert "task=plan" in text
    assert "task.show" in text


def test_a_name_inside_a_free_node_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "env.MINE", "env.MINE=7")

    assert text.startswith("env.MINE\n")
    assert "7    from override" in text


def test_without_a_key_every_node_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, None)

    assert all(f"  {node.node} " in text for node in job_nodes() if node.node and "." not in node.node)


def test_an_unknown_key_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["platform=cpu", "task=help", "task.key=optimizer.lrr"]) == 2
    assert "did you mean optimizer.lr?" in capsys.readouterr().err
