"""The directory of a run: valid, below run.dir, and one for each name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.tasks.run_folder import folder_name

names = st.text(min_size=1)


@pytest.mark.parametrize("name", ["llama3_8b-pretrain-1a2b3c4d", "日本語", "a.b+c=d@e", "Größe"])
def test_a_plain_name_is_the_directorys(name: str) -> None:
    assert folder_name(name) == name


@pytest.mark.parametrize(
    "name", ["a/b", "../up", "..", ".", "/etc", ".hidden", "-x", "a b", "a\nb", "x" * 300, "日" * 300]
)
def test_any_other_name_is_changed_and_ends_in_its_hash(name: str) -> None:
    folder = folder_name(name)

    assert folder != name
    assert not set(folder) & set("/ \n\0")
    assert not folder.startswith((".", "-"))
    assert len(folder.encode()) <= 200


@given(names, names)
def test_two_names_have_two_directories(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)
    assert len(folder_name(one).encode(errors="replace")) <= 200
