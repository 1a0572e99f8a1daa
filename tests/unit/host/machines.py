"""Machines that are not here: trees of /proc, /sys and /dev, and drivers' tools that answer what was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
AMD_SMI = ("amd-smi", "static", "--asic", "--json")
ROCM_SMI = ("rocm-smi", "--showproductname", "--json")


class Tools:
    """A runner that knows the given tools only, and remembers what was called."""

    def __init__(self, answers: Mapping[tuple[str, ...], str] | None = None) -> None:
        self.answers = dict(answers or {})
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, argv: Sequence[str]) -> str | None:
        self.calls.append(tuple(argv))
        return self.answers.get(tuple(argv))


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def nvidia_node(root: Path, models: Sequence[str], *, devices: Sequence[int] | None = None) -> Path:
    """The driver's files; `devices` are the minors whose device node exists (all by default)."""
    files = {}
    for minor, model in enumerate(models):
        files[f"proc/driver/nvidia/gpus/0000:{0x18 + minor:02x}:00.0/information"] = (
            f"Model: \t\t {model}\n"
            f"IRQ:   \t\t {400 + minor}\n"
            "GPU UUID: \t GPU-????????-????-????-????-????????????\n"
            "Video BIOS: \t ??.??.??.??.??\n"
            "Bus Type: \t PCIe\n"
            "DMA Size: \t 52 bits\n"
            f"Bus Location: \t 0000:{0x18 + minor:02x}:00.0\n"
            f"Device Minor: \t {minor}\n"
            "GPU Excluded:\t No\n"
        )
    for minor in range(len(models)) if devices is None else devices:
        files[f"dev/nvidia{minor}"] = ""
    return write(root, files)


def kfd_properties(device_id: int, version: int, location: int = 1280, unique_id: int = 0) -> str:
    return (
        "cpu_cores_count 0\n"
        "simd_count 1216\n"
        "mem_banks_count 1\n"
        "wave_front_size 64\n"
        f"gfx_target_version {version}\n"
        "vendor_id 4098\n"
        f"device_id {device_id}\n"
        f"location_id {location}\n"
        "domain 0\n"
        f"unique_id {unique_id}\n"
        "hive_id 11638818706288400384\n"
        "num_xcc 8\n"
    )


def amd_node(root: Path, gpus: Sequence[tuple[int, int]], *, kfd: bool = True) -> Path:
    """A topology of two processors and `gpus` given as (PCI device id, gfx_target_version)."""
    cpu = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\nvendor_id 0\ndevice_id 0\n"
    files = {f"sys/class/kfd/kfd/topology/nodes/{node}/properties": cpu for node in range(2)}
    for place, (device_id, version) in enumerate(gpus):
        files[f"sys/class/kfd/kfd/topology/nodes/{2 + place}/properties"] = kfd_properties(device_id, version)
    if kfd:
        files["dev/kfd"] = ""
    return write(root, files)


MI300X_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
H100_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


def processors(root: Path, *, nodes: int, cores: int, distances: Sequence[str] = ()) -> Path:
    """`nodes` NUMA nodes of `cores` cores with two hyper-threads; the second threads are numbered after all first."""
    files = {}
    total = nodes * cores
    for node in range(nodes):
        first = node * cores
        second = first + total
        files[f"sys/devices/system/node/node{node}/cpulist"] = (
            f"{first}-{first + cores - 1},{second}-{second + cores - 1}\n"
        )
        if distances:
            files[f"sys/devices/system/node/node{node}/distance"] = f"{distances[node]}\n"
    for cpu in range(2 * total):
        core = cpu % total
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = f"{core},{core + total}\n"
    return write(root, files)


def pci_device(root: Path, address: str, *, node: int, cpus: str = "0-1023") -> Path:
    folder = f"sys/bus/pci/devices/{address}"
    return write(root, {f"{folder}/numa_node": f"{node}\n", f"{folder}/local_cpulist": f"{cpus}\n"})


def mi300x_node(root: Path, numa_nodes: Sequence[int]) -> Path:
    """MI300X at the addresses of a real node, each near one of `numa_nodes` (-1: the firmware does not say)."""
    files = {"dev/kfd": ""}
    for place, (bus, node) in enumerate(zip(MI300X_BUSES, numa_nodes, strict=False)):
        properties = kfd_properties(0x74A1, 90402, location=bus << 8, unique_id=0xA0B0 + place)
        files[f"sys/class/kfd/kfd/topology/nodes/{2 + place}/properties"] = properties
        pci_device(root, f"0000:{bus:02x}:00.0", node=node)
    return write(root, files)


def h100_node(root: Path, numa_nodes: Sequence[int]) -> Path:
    files = {}
    for minor, (bus, node) in enumerate(zip(H100_BUSES, numa_nodes, strict=False)):
        files[f"proc/driver/nvidia/gpus/0000:{bus:02x}:00.0/information"] = (
            "Model: \t\t NVIDIA H100 80GB HBM3\n"
            f"GPU UUID: \t GPU-{minor:08x}-1111-2222-3333-444444444444\n"
            f"Bus Location: \t 0000:{bus:02x}:00.0\n"
            f"Device Minor: \t {minor}\n"
        )
        files[f"dev/nvidia{minor}"] = ""
        pci_device(root, f"0000:{bus:02x}:00.0", node=node)
    return write(root, files)


def amd_card(root: Path, card: int, *, device: str, pci_class: str) -> Path:
    folder = f"sys/class/drm/card{card}/device"
    return write(root, {f"{folder}/vendor": "0x1002\n", f"{folder}/device": device, f"{folder}/class": pci_class})


def asic(name: str) -> dict[str, object]:
    return {
        "market_name": name,
        "vendor_id": "0x1002",
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "subvendor_id": "0x1002",
        "device_id": "0x74a1",
        "rev_id": "0x00",
        "oam_id": 0,
        "target_graphics_version": "gfx942",
    }


def amd_smi_6(names: Sequence[str]) -> str:
    return json.dumps([{"gpu": index, "asic": asic(name)} for index, name in enumerate(names)], indent=4)


def amd_smi_7(names: Sequence[str]) -> str:
    return json.dumps({"gpu_data": [{"gpu": index, "asic": asic(name)} for index, name in enumerate(names)]}, indent=4)


def rocm_smi(names: Sequence[str], key: str = "Card Series") -> str:
    cards = {
        f"card{index}": {key: name, "Card Model": "0x74a1", "Card SKU": "M3000100", "GFX Version": "gfx942"}
        for index, name in enumerate(names)
    }
    return json.dumps({**cards, "system": {"Driver version": "6.10.5"}})
