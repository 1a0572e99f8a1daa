"""NVIDIA GPUs from the kernel driver's files, and from nvidia-smi where those do not tell.

The files come first: reading them takes no time, while nvidia-smi may wait for every GPU. In a container they can list
all GPUs of the machine, so only a GPU whose device node is here counts.
"""

from __future__ import annotations

from pathlib import Path

from primus_hydra.host.gpu import Found, Gpu
from primus_hydra.host.tool import RunTool

_QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


def find_nvidia(root: Path, run: RunTool) -> Found:
    """Return the NVIDIA GPUs that this process can open."""
    listed = _listed(root)
    usable = [model for model, device in listed if device.exists()]
    if usable and all(model is not None for model in usable):
        return _found([model for model in usable if model is not None])
    # Fresh bare metal has no device nodes yet, which nvidia-smi makes, and WSL has no files at all.
    names = [line.strip() for line in (run(_QUERY) or "").splitlines() if line.strip()]
    if names:
        return _found(names)
    if listed:
        return Found(notes=(_blocked(len(listed)),))
    return Found()


def _listed(root: Path) -> list[tuple[str | None, Path]]:
    """Return model and device node of every GPU that the driver holds; a model not read yet is None."""
    entries: list[tuple[str | None, Path]] = []
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
        model = fields.get("Model", "Unknown")
        device = root / "dev" / f"nvidia{fields.get('Device Minor', '')}"
        entries.append((None if model == "Unknown" else model, device))
    return entries


def _found(names: list[str]) -> Found:
    return Found(gpus=tuple(Gpu(vendor="nvidia", names=(name,)) for name in names))


def _blocked(count: int) -> str:
    return (
        f"{count} NVIDIA GPU(s) are in this machine, but nvidia-smi does not reach them: "
        "in a container, start it with --gpus all; elsewhere, run nvidia-smi to see why"
    )
