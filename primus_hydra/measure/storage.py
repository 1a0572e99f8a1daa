"""How fast a training state reaches a disk and comes back, and that it is the same then. Imports torch."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

_TENSOR_MIB = 64
"""Size of one tensor of the state: about that of a layer's matrix."""


def checkpoint(folder: str, mib: int, method: str = "torch") -> dict[str, Any]:
    """Save `mib` of random float32 tensors below `folder`, read them back, and take them away again.

    `torch` writes one file by `torch.save`, `dcp` a folder by torch's distributed checkpoint, as one rank. The write
    counts until everything is on the disk (fsync); the read may come from memory, and `dropped` says if it cannot.
    Raises RuntimeError where what comes back is not what was saved.
    """
    root = Path(folder) / f".checkpoint-{os.getpid()}"
    root.mkdir(parents=True)
    try:
        state = {f"layer.{part}": torch.randn(1 << 18, min(_TENSOR_MIB, mib)) for part in range(-(-mib // _TENSOR_MIB))}
        size = sum(tensor.numel() * 4 for tensor in state.values())
        began = time.perf_counter()
        _save(state, root, method)
        written = time.perf_counter() - began
        dropped = sum(not _drop(file) for file in root.rglob("*") if file.is_file()) == 0
        began = time.perf_counter()
        back = _load(state, root, method)
        read = time.perf_counter() - began
        if not all(torch.equal(tensor, back[name]) for name, tensor in state.items()):
            raise RuntimeError("the state that was read is not the one that was saved")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {"bytes": size, "write_s": written, "read_s": read, "dropped": dropped}


def _save(state: dict[str, torch.Tensor], root: Path, method: str) -> None:
    if method == "dcp":
        save(state, checkpoint_id=str(root / "state"), no_dist=True)
    else:
        torch.save(state, root / "state.pt")
    for file in root.rglob("*"):
        if file.is_file():
            _sync(file)


def _load(state: dict[str, torch.Tensor], root: Path, method: str) -> dict[str, torch.Tensor]:
    if method != "dcp":
        loaded: dict[str, torch.Tensor] = torch.load(root / "state.pt", weights_only=True)
        return loaded
    back = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    load(back, checkpoint_id=str(root / "state"), no_dist=True)
    return back


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _drop(file: Path) -> bool:
    """Ask the kernel to forget the file's pages, so that they are read from the disk; false where it cannot."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
