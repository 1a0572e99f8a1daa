"""AMD GPUs from the kernel's compute topology (KFD), and their product names from amd-smi or rocm-smi.

The topology needs no tool and gives the PCI id. Graphics that share the processor's die are left out: training on them
is not what a user of a laptop asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from primus_hydra.host.gpu import Found, Gpu
from primus_hydra.host.tool import RunTool

_AMD_SMI = ("amd-smi", "static", "--asic", "--json")
_ROCM_SMI = ("rocm-smi", "--showproductname", "--json")
_PROCESSING_ACCELERATOR = "0x1200"  # PCI class 12h; graphics cards are 03h
# Targets of APUs (LLVM: User Guide for AMDGPU Backend, Processors, column dGPU/APU).
_INTEGRATED = re.compile(r"gfx(902|909|90c|1013|103[3567]|1103|115[0-3])")


def find_amd(root: Path) -> Found:
    """Return the AMD accelerators that this process can use, named by PCI id, in the order of the runtime (ROCr)."""
    gpus = tuple(gpu for node in _nodes(root) if (gpu := _gpu_of(root, node)) is not None)
    if gpus and not (root / "dev/kfd").exists():
        return Found(notes=(_blocked(len(gpus), "/dev/kfd is not"),))
    if gpus:
        return Found(gpus=gpus)
    cards = _cards(root)
    hidden = _blocked(cards, "the kernel's compute driver does not show them to this process")
    return Found(notes=(hidden,) if cards else ())


def with_product_names(gpus: Sequence[Gpu], run: RunTool) -> tuple[Gpu, ...]:
    """Put the tools' product names in front, where they give one per GPU or the same for all."""
    names = _amd_smi_names(run(_AMD_SMI)) or _rocm_smi_names(run(_ROCM_SMI))
    if len(names) != len(gpus):
        names = names[:1] * len(gpus) if len(set(names)) == 1 else []
    named = [replace(gpu, names=(name, *gpu.names)) for gpu, name in zip(gpus, names, strict=False)]
    return tuple(named) if named else tuple(gpus)


def _nodes(root: Path) -> list[Mapping[str, int]]:
    """Return the numeric properties of each topology node; a container cannot read those of GPUs it was not given."""
    folders = sorted(root.glob("sys/class/kfd/kfd/topology/nodes/[0-9]*"), key=lambda folder: int(folder.name))
    nodes: list[Mapping[str, int]] = []
    for folder in folders:
        try:
            lines = (folder / "properties").read_text(errors="replace").splitlines()
        except OSError:
            continue
        pairs = (line.split() for line in lines)
        nodes.append({pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()})
    return nodes


def _gpu_of(root: Path, node: Mapping[str, int]) -> Gpu | None:
    version = node.get("gfx_target_version", 0)
    arch = _arch(version)
    if not version or not node.get("simd_count") or _INTEGRATED.fullmatch(arch):
        return None
    return Gpu(
        vendor="amd",
        names=(f"{node.get('vendor_id', 0):04x}:{node.get('device_id', 0):04x}",),
        arch=arch,
        pci=_address(root, node),
        uuid=f"GPU-{node['unique_id']:016x}" if node.get("unique_id") else None,
    )


def _address(root: Path, node: Mapping[str, int]) -> str | None:
    """Return the PCI address: bus, device and function are the low 16 bits of `location_id`.

    In a partitioned GPU some kernels put the partition's number there in place of the function: then it is function 0.
    """
    place = node.get("location_id")
    if place is None:
        return None
    device = f"{node.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}"
    exact = f"{device}.{place & 7}"
    return exact if (root / "sys/bus/pci/devices" / exact).exists() else f"{device}.0"


def _arch(version: int) -> str:
    """Return the target's name: 90402 is gfx942, and the last two digits are hexadecimal (90010 is gfx90a)."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _cards(root: Path) -> int:
    """Count the accelerators (not the graphics cards) of AMD on the PCI bus that a graphics driver has bound."""
    return sum(
        _read(device / "vendor") == "0x1002" and _read(device / "class").startswith(_PROCESSING_ACCELERATOR)
        for device in root.glob("sys/class/drm/card*/device")
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _blocked(count: int, why: str) -> str:
    return (
        f"{count} AMD GPU(s) are in this machine, but {why}: "
        "in a container, start it with --device=/dev/kfd --device=/dev/dri; elsewhere, run rocminfo to see why"
    )


def _amd_smi_names(output: str | None) -> list[str]:
    """Read `amd-smi static --asic --json`: a list of GPUs up to ROCm 6, below `gpu_data` from ROCm 7."""
    data = json_in(output)
    gpus = data.get("gpu_data") if isinstance(data, dict) else data
    entries = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    names = [_text(entry.get("asic"), "market_name") for entry in entries]
    return [name for name in names if name and name != "N/A"]


def _rocm_smi_names(output: str | None) -> list[str]:
    """Read `rocm-smi --showproductname --json`: one object per card; releases spell `Card series` both ways."""
    data = json_in(output)
    cards = data if isinstance(data, dict) else {}
    keys = [key for key in cards if re.fullmatch(r"card\d+", key)]
    ordered = sorted(keys, key=lambda key: int(key.removeprefix("card")))
    names = [_text(cards[key], "Card Series") or _text(cards[key], "Card series") for key in ordered]
    return [name for name in names if name and name != "N/A"]


def json_in(output: str | None) -> Any:
    """Return the JSON of a tool's output, which may follow warnings; None if there is none."""
    start = re.search(r"^[\[{]", output or "", re.MULTILINE)
    if output is None or start is None:
        return None
    try:
        return json.JSONDecoder().raw_decode(output, start.start())[0]
    except json.JSONDecodeError:
        return None


def _text(node: Any, key: str) -> str:
    value = node.get(key) if isinstance(node, dict) else None
    return value.strip() if isinstance(value, str) else ""
