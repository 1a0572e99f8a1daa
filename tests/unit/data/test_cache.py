import errno
import multiprocessing
import time
from pathlib import Path

import pytest

from primus_hydra.data.cache import build_once, cache_root
from primus_hydra.errors import HostError


def is_whole(folder: Path) -> bool:
    return (folder / "done").exists()


def build(draft: Path) -> None:
    (draft / "done").write_text("yes")


def slow_build(log: Path):
    def inner(draft: Path) -> None:
        with log.open("a") as stream:
            stream.write("built\n")
        time.sleep(0.3)
        build(draft)

    return inner


def builder(folder: Path, log: Path, start, told) -> None:
    lines: list[str] = []
    start.wait()
    built = build_once(folder, is_whole=is_whole, build=slow_build(log), report=lines.append, what="it")
    told.put((built, is_whole(folder), lines))


def leftovers(folder: Path) -> list[str]:
    return [entry.name for entry in folder.parent.iterdir() if "draft" in entry.name]


def once(folder: Path, build=build, lines: list[str] | None = None) -> bool:
    return build_once(folder, is_whole=is_whole, build=build, report=(lines or []).append, what="it")


def test_processes_that_want_the_same_folder_build_it_once_and_the_others_wait(tmp_path):
    context = multiprocessing.get_context("fork")
    start, told = context.Barrier(3), context.Queue()
    arguments = (tmp_path / "deep" / "key", tmp_path / "log", start, told)
    processes = [context.Process(target=builder, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    answers = [told.get(timeout=20) for _ in processes]
    for process in processes:
        process.join(timeout=20)
    assert sorted(built for built, _, _ in answers) == [False, False, True]
    assert all(whole for _, whole, _ in answers)
    assert (tmp_path / "log").read_text() == "built\n"
    assert ["another process is building it; waiting for it"] in [lines for _, _, lines in answers]


def test_a_whole_folder_is_not_built_again(tmp_path):
    assert once(tmp_path / "key")
    assert not once(tmp_path / "key")


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    def fail(draft: Path) -> None:
        build(draft)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(tmp_path / "key", fail)
    assert not (tmp_path / "key").exists()
    assert leftovers(tmp_path / "key") == []


def test_a_damaged_folder_and_the_draft_of_a_killed_process_are_replaced(tmp_path):
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "half").touch()
    (tmp_path / ".key.draft-123").mkdir()
    lines: list[str] = []
    build_once(tmp_path / "key", is_whole=is_whole, build=build, report=lines.append, what="it")
    assert [entry.name for entry in (tmp_path / "key").iterdir()] == ["done"]
    assert leftovers(tmp_path / "key") == []
    assert "damaged" in lines[0]


def test_a_full_disk_is_a_host_error_that_names_the_folder_and_leaves_no_half_cache(tmp_path):
    def fill(draft: Path) -> None:
        (draft / "part").write_text("x")
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(HostError, match="No space left on device") as caught:
        once(tmp_path / "key", fill)
    assert str(tmp_path / "key") in str(caught.value)
    assert "PRIMUS_CACHE" in str(caught.value)
    assert not (tmp_path / "key").exists()
    assert leftovers(tmp_path / "key") == []


def test_a_cache_that_is_no_folder_is_a_host_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="cache cannot be written"):
        once(tmp_path / "file" / "key")


def test_other_errors_of_the_system_pass_through(tmp_path):
    def fail(draft: Path) -> None:
        raise OSError(errno.EIO, "broken disk")

    with pytest.raises(OSError, match="broken disk"):
        once(tmp_path / "key", fail)


def test_the_cache_lies_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("PRIMUS_CACHE")
    assert cache_root() == tmp_path / "xdg" / "primus_hydra"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "primus_hydra"
