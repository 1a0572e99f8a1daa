"""`init_from`: a path of the user's, with or without the word for Hugging Face's layout before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.init_from import hf_folder
from tests.unit.config.conftest import Compose


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("hf:runs/seed/export", "hf:{here}/runs/seed/export"), ("hf:~/llama", "hf:{here}/home/llama"), ("hf:/m", "hf:/m")],
)
def test_the_path_behind_the_prefix_counts_from_where_the_user_stands(
    typed: str, meant: str, composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert composed(f"init_from={typed}").job.init_from == meant.format(here=tmp_path)


def test_only_the_prefix_makes_a_folder_of_hugging_face() -> None:
    assert hf_folder("hf:/models/llama") == Path("/models/llama")
    assert [hf_folder(value) for value in (None, "/models/llama", "/models/hf:llama")] == [None] * 3
