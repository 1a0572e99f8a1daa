"""What is known of one GPU, and which of a node's GPUs a process may use."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

_FIRST_MASK_OF_AMD = "ROCR_VISIBLE_DEVICES"
_LATER_MASKS_OF_AMD = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
# Applied one after the other, as the runtimes do: ROCr hides first, then HIP numbers what is left. HIP reads CUDA's
# name too (ROCm environment variables, GPU isolation).
_VISIBILITY: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia": (("CUDA_VISIBLE_DEVICES",),),
    "amd": ((_FIRST_MASK_OF_AMD,), _LATER_MASKS_OF_AMD[:2]),
}


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU by every name that a driver gives it: the product name first, if one is known, and the PCI id.

    `pci` is its address on the bus (`0000:18:00.0`), `uuid` what the visibility variables call it (`GPU-...`); None
    where it is not known.
    """

    vendor: Literal["amd", "nvidia"]
    names: tuple[str, ...]
    arch: str | None = None
    pci: str | None = None
    uuid: str | None = None

    @property
    def label(self) -> str:
        """One line for a message."""
        rest = [*self.names[1:], *([self.arch] if self.arch else [])]
        return f"{self.names[0]} ({', '.join(rest)})" if rest else self.names[0]

    def matches(self, patterns: Iterable[str]) -> bool:
        """Whether a name fits one of the patterns: whole names, any case, `*` for any text."""
        return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns for name in self.names)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The usable GPUs of one vendor, and why others that are in the machine cannot be used."""

    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()


def visible(gpus: Sequence[Gpu], env: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs that the visibility variables leave, vendor by vendor and in their order."""
    left: list[Gpu] = []
    for vendor, steps in _VISIBILITY.items():
        mine = [gpu for gpu in gpus if gpu.vendor == vendor]
        for names in steps:
            value = next((env[name] for name in names if name in env), None)
            mine = mine if value is None else _chosen(mine, value)
        left += mine
    return tuple(left)


def renumbered_masks(vendor: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return masks of GPUs that were written twice, as they should be.

    Slurm gives the node's numbers to every runtime that it knows (gres.conf without `amd_gpu_env`). But HIP counts what
    ROCr leaves: with 3,4,5 in both it finds no GPU. So the later ones become 0,1,2.
    """
    first = env.get(_FIRST_MASK_OF_AMD)
    if vendor != "amd" or not first or not all(entry.strip().isdigit() for entry in first.split(",")):
        return {}
    numbers = ",".join(str(place) for place in range(len(first.split(","))))
    return {name: numbers for name in _LATER_MASKS_OF_AMD if env.get(name) == first != numbers}


def _chosen(gpus: list[Gpu], value: str) -> list[Gpu]:
    """Apply one list; as in the runtimes, the first invalid entry ends it (Slurm writes NoDevFiles for no GPU)."""
    chosen: list[Gpu] = []
    for place, entry in enumerate(part.strip() for part in value.split(",") if part.strip()):
        gpu = _named(gpus, entry, place)
        if gpu is None:
            break
        chosen.append(gpu)
    return chosen


def _named(gpus: list[Gpu], entry: str, place: int) -> Gpu | None:
    """Return the GPU of an index or a UUID, which may be cut short; None for an invalid entry.

    An unknown UUID or a MIG slice stands for the GPU in its place in the list, whose address is then not known.
    """
    if entry.isdigit():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if not entry.startswith(("GPU-", "MIG-")) or place >= len(gpus):
        return None
    same = (gpu for gpu in gpus if gpu.uuid is not None and gpu.uuid.lower().startswith(entry.lower()))
    return next(same, replace(gpus[place], pci=None, uuid=None))
