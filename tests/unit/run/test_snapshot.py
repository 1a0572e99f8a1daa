"""The code as submitted: which files a copy has, and that nothing of it changes afterwards."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from primus_hydra.errors import HostError, UserError
from primus_hydra.run import code_files, snapshot
from primus_hydra.run.snapshot import Snapshot, python_path, take_snapshot

AUTHOR = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *words]
    return subprocess.run(argv, env={**os.environ, **AUTHOR}, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A git tree with one commit: a program, a link, and ignored files."""
    folder = tmp_path / "tree"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("VALUE = 'as committed'\n")
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "linked").symlink_to("package")
    (folder / ".gitignore").write_text("*.ckpt\n")
    git(folder, "init", "-q", "-b", "topic")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "large.ckpt").write_text("weights")
    return folder


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "code"


def files(taken: Snapshot) -> set[str]:
    found = (Path(place, name) for place, folders, names in os.walk(taken.code) for name in (*names, *folders))
    return {str(path.relative_to(taken.code)) for path in found if path.is_symlink() or path.is_file()}


def value_in_job(taken: Snapshot, folder: Path) -> str:
    """Import the package as a job does, even from the folder where it is developed."""
    path = os.pathsep.join(map(str, python_path(taken)))
    code = "import package; print(package.VALUE)"
    argv = [sys.executable, "-P", "-c", code]
    return subprocess.run(
        argv, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_an_edit_after_the_submission_does_not_reach_the_job(tree: Path, into: Path):
    (tree / "package" / "__init__.py").write_text("VALUE = 'as submitted'\n")
    taken = take_snapshot(tree, into)
    (tree / "package" / "__init__.py").write_text("VALUE = 'edited later'\n")
    assert value_in_job(taken, tree) == "as submitted"


def test_a_copy_has_what_git_has_or_would_add(tree: Path, into: Path):
    (tree / "new\nfile.py").write_text("1\n")
    (tree / os.fsdecode(b"latin-\xe9.txt")).write_text("1\n")
    (tree / "package" / "__init__.py").unlink()
    taken = take_snapshot(tree, into)
    assert files(taken) == {"run.sh", "linked", ".gitignore", "new\nfile.py", os.fsdecode(b"latin-\xe9.txt")}
    assert os.access(taken.code / "run.sh", os.X_OK)
    assert (taken.code / "linked").readlink() == Path("package")
    assert not stat.S_IMODE((taken.code / ".gitignore").stat().st_mode) & 0o222
    assert json.loads(json.dumps(taken.note()))["git"]["untracked"] == ["latin-�.txt", "new\nfile.py"]


def test_the_note_tells_commit_branch_and_changes(tree: Path, into: Path):
    clean = take_snapshot(tree, into)
    assert clean.git is not None
    assert (clean.git.commit, clean.git.branch, clean.git.dirty) == (git(tree, "rev-parse", "HEAD"), "topic", False)
    (tree / "run.sh").write_text("false\n")
    changed = take_snapshot(tree, into)
    assert changed.git is not None
    assert changed.git.dirty
    assert "+false" in changed.git.changes
    folder = Path(changed.folder)
    assert (folder / "changes.patch").read_text() == changed.git.changes
    assert json.loads((folder / "snapshot.json").read_text()) == json.loads(json.dumps(changed.note()))


def test_a_tree_without_commits_is_taken_as_it_is(tree: Path, into: Path):
    shutil.rmtree(tree / ".git")
    git(tree, "init", "-q")
    taken = take_snapshot(tree, into)
    assert taken.git is not None
    assert taken.git.commit is None
    assert taken.git.dirty
    assert "large.ckpt" not in files(taken)


def test_submodules_and_repositories_inside_come_with_their_files(tree: Path, into: Path, tmp_path: Path):
    library = tmp_path / "library"
    library.mkdir()
    (library / "lib.py").write_text("1\n")
    git(library, "init", "-q")
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "library")
    git(tree, "submodule", "add", "-q", str(library), "third_party/library")
    shutil.copytree(library, tree / "checkout")
    taken = take_snapshot(tree, into)
    assert {"third_party/library/lib.py", "checkout/lib.py"} <= files(taken)
    assert taken.git is not None
    assert taken.git.submodules == (f"third_party/library {git(library, 'rev-parse', 'HEAD')}",)


def test_equal_content_is_one_copy_whatever_its_history(tree: Path, into: Path, tmp_path: Path):
    first = take_snapshot(tree, into)
    before = (first.code / "run.sh").stat().st_ino
    shutil.copytree(tree, tmp_path / "other", symlinks=True, ignore=shutil.ignore_patterns(".git"))
    (tmp_path / "other" / "large.ckpt").unlink()
    assert take_snapshot(tmp_path / "other", into).folder == first.folder
    assert (first.code / "run.sh").stat().st_ino == before
    (tree / "run.sh").chmod(0o644)
    assert take_snapshot(tree, into).folder != first.folder


def test_submitters_that_race_agree_on_one_copy(tree: Path, into: Path):
    taken: list[Snapshot] = []
    racing = [threading.Thread(target=lambda: taken.append(take_snapshot(tree, into))) for _ in range(4)]
    for one in racing:
        one.start()
    for one in racing:
        one.join()
    assert len({one.folder for one in taken}) == 1 == len(list(into.iterdir()))


def test_a_damaged_copy_is_made_again(tree: Path, into: Path):
    taken = take_snapshot(tree, into)
    (taken.code / "run.sh").unlink()
    assert "run.sh" in files(take_snapshot(tree, into))


def test_a_folder_that_is_no_repository_is_copied_without_leavings(tmp_path: Path, into: Path):
    folder = tmp_path / "plain"
    for name in ("a.py", "__pycache__/a.pyc", ".venv/bin/python", "runs/1/log", "deep/b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    os.mkfifo(folder / "pipe")
    (folder / "away").symlink_to("../elsewhere")
    taken = take_snapshot(folder, folder / "runs" / "code", without=[folder / "runs"])
    assert files(taken) == {"a.py", "deep/b.txt", "away"}
    assert taken.git is None
    assert taken.skipped == ("pipe",)
    assert taken.outside == ("away",)
    assert (taken.code / "away").readlink() == tmp_path / "elsewhere"


@pytest.mark.parametrize("harm", ["missing", "corrupt"])
def test_where_git_cannot_tell_all_files_are_copied_and_the_note_says_why(
    tree: Path, into: Path, harm: str, monkeypatch: pytest.MonkeyPatch
):
    if harm == "missing":
        monkeypatch.setenv("PATH", str(into))
    else:
        (tree / ".git" / "HEAD").write_text("nonsense\n")
    taken = take_snapshot(tree, into)
    assert taken.git is None
    assert ("not installed" if harm == "missing" else "git ls-files") in (taken.why_not_git or "")
    assert files(taken) == {"run.sh", "linked", ".gitignore", "large.ckpt", "package/__init__.py"}


def test_what_git_was_told_of_another_repository_does_not_hold_here(
    tree: Path, into: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GIT_DIR", "/nowhere/.git")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert "run.sh" in files(take_snapshot(tree, into))


def test_no_project_is_refused(tmp_path: Path, into: Path, monkeypatch: pytest.MonkeyPatch):
    bare = tmp_path / "bare.git"
    bare.mkdir()
    git(bare, "init", "-q", "--bare")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for folder in (bare, home, Path("/"), tmp_path / "absent"):
        with pytest.raises(UserError, match=r"launch\.snapshot=false"):
            take_snapshot(folder, into)
    assert not into.exists()


def test_a_tree_that_is_too_large_is_refused_with_what_is_large(
    tree: Path, into: Path, monkeypatch: pytest.MonkeyPatch
):
    (tree / "data.bin").write_bytes(b"x" * 3000)
    monkeypatch.setattr(snapshot, "MOST_BYTES", 2000)
    with pytest.raises(UserError, match=r"data\.bin") as refused:
        take_snapshot(tree, into)
    assert ".gitignore" in str(refused.value)
    monkeypatch.setattr(snapshot, "MOST_BYTES", 10**6)
    monkeypatch.setattr(snapshot, "MOST_FILES", 3)
    with pytest.raises(UserError, match="5 files"):
        take_snapshot(tree, into)


def test_all_files_that_cannot_be_read_are_named(tree: Path, into: Path, monkeypatch: pytest.MonkeyPatch):
    closed = {str(tree / "run.sh"), str(tree / ".gitignore")}
    monkeypatch.setattr(snapshot.os, "access", lambda path, mode: str(path) not in closed)
    with pytest.raises(UserError) as refused:
        take_snapshot(tree, into)
    assert len(refused.value.problems) == 2


def test_a_file_that_is_written_while_it_is_copied_is_copied_again(
    tree: Path, into: Path, monkeypatch: pytest.MonkeyPatch
):
    real, looks = os.fstat, itertools.count()

    def fstat(descriptor: int) -> os.stat_result:
        if next(looks) == 1:  # the first file was read, and is looked at again
            (tree / ".gitignore").write_text("longer than before\n")
        return real(descriptor)

    monkeypatch.setattr(snapshot.os, "fstat", fstat)
    taken = take_snapshot(tree, into)
    assert (taken.code / ".gitignore").read_text() == "longer than before\n"
    assert next(looks) == 2 + 2 * 2 * 4  # one file; then four, two looks at each, to name the content and to copy it


def test_a_file_that_never_holds_still_is_named(tree: Path, into: Path, monkeypatch: pytest.MonkeyPatch):
    facts = iter(os.stat_result((0o100644, 0, 0, 1, 0, 0, 5, time, time, time)) for time in range(10**6))
    monkeypatch.setattr(snapshot.os, "fstat", lambda descriptor: next(facts))
    with pytest.raises(UserError, match="written to all the time"):
        take_snapshot(tree, into)


def test_a_place_that_cannot_be_written_is_what_the_machine_lacks(tree: Path, tmp_path: Path):
    (tmp_path / "file").write_text("1\n")
    with pytest.raises(HostError, match="cannot be copied"):
        take_snapshot(tree, tmp_path / "file" / "code")


def test_a_repository_starts_no_program(tree: Path, into: Path, tmp_path: Path):
    spy = tmp_path / "spy.sh"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    spy.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "core.pager"):
        git(tree, "config", name, str(spy))
    (tree / "run.sh").write_text("false\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    taken = take_snapshot(tree, into)
    assert taken.git is not None
    assert "+false" in taken.git.changes
    assert not (tmp_path / "ran").exists()


def test_listing_a_plain_folder_follows_no_link(tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list(code_files.plain_files(tmp_path)) == ["loop"]
