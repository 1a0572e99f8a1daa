"""NVIDIA GPUs from the kernel driver's files, and from nvidia-smi where those do not tell.

The files come first: reading them takes no time, while nvidia-smi may wait for every GPU. In a container they can list
all GPUs of the machine, so only a GPU whose device node is here counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.host.gpu import Found, Gpu
from primus_hydra.host.tool import RunTool

_Place = tuple[str | None, str | None]  # PCI address and UUID
_QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """A GPU that the driver holds; a model or UUID that it has not read yet is None."""

    pci: str
    model: str | None
    uuid: str | None
    device: Path


def find_nvidia(root: Path, run: RunTool) -> Found:
    """Return the NVIDIA GPUs that this process can open, by PCI address.

    That is the order of CUDA too where they are of one kind: of several, CUDA puts the fastest first.
    """
    listed = _listed(root)
    usable = [gpu for gpu in listed if gpu.device.exists()]
    if usable and all(gpu.model is not None for gpu in usable):
        return _found([gpu.model or "" for gpu in usable], _places(usable))
    # Fresh bare metal has no device nodes yet, which nvidia-smi makes, and WSL has no files at all.
    names = [line.strip() for line in (run(_QUERY) or "").splitlines() if line.strip()]
    if names:
        return _found(names, _places(usable or listed) or _bound(root))
    if listed:
        return Found(notes=(_blocked(len(listed)),))
    return Found()


def _listed(root: Path) -> list[_Listed]:
    """Return every GPU that the driver holds, in the order of their addresses, which name their folders."""
    entries: list[_Listed] = []
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
        model, uuid = fields.get("Model", "Unknown"), fields.get("GPU UUID", "?")
        entries.append(
            _Listed(
                pci=file.parent.name,
                model=None if model == "Unknown" else model,
                uuid=None if "?" in uuid else uuid,
                device=root / "dev" / f"nvidia{fields.get('Device Minor', '')}",
            )
        )
    return entries


def _places(listed: Sequence[_Listed]) -> list[_Place]:
    return [(gpu.pci, gpu.uuid) for gpu in listed]


def _bound(root: Path) -> list[_Place]:
    """Return the display controllers (PCI class 03h) that the driver has bound, where its own files tell nothing."""
    folders = sorted(root.glob("sys/bus/pci/drivers/nvidia/*:*:*.*"))
    return [(folder.name, None) for folder in folders if _class(folder).startswith("0x03")]


def _class(device: Path) -> str:
    try:
        return (device / "class").read_text(errors="replace")
    except OSError:
        return ""


def _found(names: Sequence[str], places: Sequence[_Place]) -> Found:
    """Put names and places together; where they are not as many, nobody knows whose place is whose."""
    known = places if len(places) == len(names) else [(None, None)] * len(names)
    pairs = zip(names, known, strict=True)
    return Found(gpus=tuple(Gpu(vendor="nvidia", names=(name,), pci=pci, uuid=uuid) for name, (pci, uuid) in pairs))


def _blocked(count: int) -> str:
    return (
        f"{count} NVIDIA GPU(s) are in this machine, but nvidia-smi does not reach them: "
        "in a container, start it with --gpus all; elsewhere, run nvidia-smi to see why"
    )
