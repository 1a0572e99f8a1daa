import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from primus_hydra.data.file_list import list_files


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name in ("b.txt", "a.jsonl", "deep/er/c.txt.gz", "README.md", ".hidden/d.txt", ".e.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (tmp_path / "empty.txt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(found) -> list[str]:
    return [file.relative_to(Path.cwd()).as_posix() for file in found.files]


def test_a_folder_is_read_recursively_and_sorted(tree):
    found = list_files(str(tree))
    assert names(found) == ["a.jsonl", "b.txt", "deep/er/c.txt.gz"]
    assert (found.passed_over, found.problems) == (2, [])


def test_paths_are_relative_to_the_current_folder_and_count_once(tree):
    assert names(list_files(["b.txt", "deep"])) == ["b.txt", "deep/er/c.txt.gz"]
    assert names(list_files(["b.txt", "b.txt", "./b.txt"])) == ["b.txt"]


def test_a_glob_is_sorted_and_may_cross_folders(tree):
    assert names(list_files("**/[abc].*")) == ["a.jsonl", "b.txt", "deep/er/c.txt.gz"]


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tree):
    (tree / "x[1].txt").write_text("x")
    assert names(list_files("x[1].txt")) == ["x[1].txt"]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("nowhere.txt", "does not exist"),
        ("~nobody-of-this-name/x.txt", "does not exist"),
        ("*.tsv", "nothing matches"),
        ("README.md", "unknown extension '.md'"),
        ("empty.txt", "is empty"),
        ("void", "holds no text"),
        ("dead.txt", "is a link to nothing"),
        ("loop.txt", "cannot be read"),
        ("pipe.txt", "neither a file nor a folder"),
    ],
)
def test_an_entry_that_is_no_text_is_a_problem(tree, entry, what):
    (tree / "void").mkdir()
    (tree / "dead.txt").symlink_to("gone")
    (tree / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(tree / "pipe.txt")
    found = list_files(entry)
    assert [what in problem.what for problem in found.problems] == [True]
    assert found.files == []


def test_all_problems_are_gathered(tree):
    found = list_files(["nowhere.txt", "b.txt", "README.md"])
    assert len(found.problems) == 2
    assert names(found) == ["b.txt"]


@pytest.mark.parametrize("nothing", [None, []])
def test_no_path_at_all_is_a_problem_that_says_what_to_set(nothing):
    assert "data.path=" in str(list_files(nothing).problems[0].hint)


@contextmanager
def ordinary_user():
    """Act without root's right to read everything, where the tests run as root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_without_read_permission_is_a_problem():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "b.txt").write_text("x")
        (folder / "b.txt").chmod(0)
        with ordinary_user():
            found = list_files(str(folder / "b.txt"))
    assert "Permission denied" in found.problems[0].what


def test_a_folder_without_read_permission_is_a_problem():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir(mode=0)
        with ordinary_user():
            problems = list_files(str(folder)).problems + list_files(str(folder / "closed" / "b.txt")).problems
    assert len(problems) == 2
    assert all("Permission denied" in problem.what for problem in problems)
