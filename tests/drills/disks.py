"""Faults of the disk and of what lies on it. Mounts are private to the process that makes them, and end with it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from primus_hydra.run.manifest import MANIFEST
from tests.drills.injections import IN_SAVE, IN_STEP, LATER
from tests.drills.scene import Act, Scene

DISK_MIB = 24
LEFT_BYTES = 1_200_000
"""Free space at the save: more than the small files of a run need, less than a checkpoint."""
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_alone = threading.local()


def can_mount() -> bool:
    """Whether this process may mount: root, in a container that allows it."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


def small_disk(scene: Scene) -> None:
    """Put the runs on a small disk of their own."""
    _mount(scene, scene.folder / "runs", f"size={DISK_MIB}m")


def read_only(scene: Scene) -> None:
    """Put the runs on a disk that cannot be written."""
    small_disk(scene)
    _remount(scene.folder / "runs", "ro")


def read_only_later(scene: Scene) -> None:
    """Let the disk with a stopped run be read-only from now on."""
    small_disk(scene)
    scene.take_stopped_run()
    _remount(scene.folder / "runs", "ro")


def writable(scene: Scene) -> None:
    """Let the disk be written again."""
    _remount(scene.folder / "runs", "rw")


def fill(scene: Scene) -> None:
    """Take the space that the next saves need, while a rank is in the step before them."""
    _take_space(scene, IN_STEP, leave=LEFT_BYTES)


def fill_in_save(scene: Scene) -> None:
    """Take all space in the middle of a save, and give it back two steps later."""
    _take_space(scene, IN_SAVE, leave=0)
    scene.wait_for(LATER.name)
    make_space(scene)
    scene.release(LATER.name)


def make_space(scene: Scene) -> None:
    """Give the space back."""
    (scene.folder / "runs" / "filler").unlink()


def _take_space(scene: Scene, act: Act, *, leave: int) -> None:
    scene.wait_for(act.name)
    runs = scene.folder / "runs"
    (runs / "filler").write_bytes(bytes(shutil.disk_usage(runs).free - leave))
    scene.release(act.name)


def truncate(folder: Path) -> None:
    """Cut the largest file of a checkpoint in half."""
    file = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(file, file.stat().st_size // 2)


def lose_file(folder: Path) -> None:
    """Delete a file with weights."""
    next(folder.glob("*.distcp")).unlink()


def lose_metadata(folder: Path) -> None:
    """Delete the file that says which tensor lies where."""
    (folder / ".metadata").unlink()


def lose_manifest(folder: Path) -> None:
    """Delete the file that makes the checkpoint count."""
    (folder / MANIFEST).unlink()


def damage(how: Callable[[Path], None], newest: int = 1) -> Callable[[Scene], None]:
    """Return a fault: the newest checkpoints of a run that was stopped are damaged."""

    def inject(scene: Scene) -> None:
        scene.take_stopped_run()
        folders = sorted(scene.paths.checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        for folder in folders[-newest:]:
            how(folder)

    return inject


def _mount(scene: Scene, place: Path, options: str) -> None:
    _leave_mounts_of_others()
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "drill", str(place)], check=True)
    scene.undo.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)


def _remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


def _leave_mounts_of_others() -> None:
    """Get a mount table of this thread's own, which its children inherit: nothing stays mounted after a crash."""
    if getattr(_alone, "is", False):
        return
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    _alone.__dict__["is"] = True
