"""What the vendors' tools print, in the shapes that releases have had."""

from __future__ import annotations

import json

from primus_hydra.preflight.tools import amd_smi, nvidia_smi, rocm_smi
from primus_hydra.preflight.tools.reading import read_tools
from tests.unit.host.machines import Tools

NVIDIA_GPUS = """\
0, GPU-5f2a6c1e-0b7a-4f0e-9d53-0a1b2c3d4e5f, 00000000:18:00.0, NVIDIA H100 80GB HBM3, 550.90.07, 81, 81559, 34, 0
1, GPU-7c9b1d2f-1a2b-4c3d-8e4f-5a6b7c8d9e0f, 00000000:2A:00.0, NVIDIA H100 80GB HBM3, 550.90.07, 40321, 81559, 61, [N/A]
"""
NVIDIA_PROCESSES = "GPU-7c9b1d2f-1a2b-4c3d-8e4f-5a6b7c8d9e0f, 4242, /usr/bin/python3, 40230\n"

AMD_STATIC = [
    {
        "gpu": 0,
        "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002"},
        "bus": {"bdf": "0000:0C:00.0", "max_pcie_width": 16},
        "driver": {"name": "amdgpu", "version": "6.10.5"},
    },
    {"gpu": 1, "asic": {"market_name": "N/A"}, "bus": {"bdf": "0000:22:00.0"}, "driver": {"version": "6.10.5"}},
]
AMD_METRIC = [
    {
        "gpu": 0,
        "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 41, "unit": "C"}},
        "ecc": {"total_correctable_count": 3, "total_uncorrectable_count": 0},
    },
    {"gpu": 1, "mem_usage": {"used_vram": "N/A"}, "ecc": {"total_uncorrectable_count": 2}},
]
AMD_PROCESSES = [
    {"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]},
    {
        "gpu": 1,
        "process_list": [
            {
                "process_info": {
                    "name": "python",
                    "pid": 4242,
                    "memory_usage": {"vram_mem": {"value": 2147483648, "unit": "B"}},
                }
            }
        ],
    },
]

ROCM_CARDS = {
    "card0": {
        "PCI Bus": "0000:0C:00.0",
        "VRAM Total Memory (B)": "206141652992",
        "VRAM Total Used Memory (B)": "297271296",
        "Temperature (Sensor junction) (C)": "41.0",
    },
    "card1": {"PCI Bus": "0000:22:00.0", "VRAM Total Used Memory (B)": "N/A"},
    "system": {"Driver version": "6.7.0"},
}
ROCM_PROCESSES = {"system": {"PID4242": "python, 1, 2147483648, 0, 0"}}


def amd(static: object) -> Tools:
    answers = ((amd_smi.STATIC, static), (amd_smi.METRIC, AMD_METRIC), (amd_smi.PROCESSES, AMD_PROCESSES))
    return Tools({argv: json.dumps(data) for argv, data in answers})


def test_nvidia_smi_tells_memory_errors_and_processes_by_gpu() -> None:
    report = nvidia_smi.read_nvidia_smi(Tools({nvidia_smi.GPUS: NVIDIA_GPUS, nvidia_smi.PROCESSES: NVIDIA_PROCESSES}))

    assert report is not None
    assert report.driver == "550.90.07"
    assert [(gpu.pci, gpu.used_mib, gpu.uncorrected) for gpu in report.gpus] == [
        ("0000:18:00.0", 81.0, 0),
        ("0000:2a:00.0", 40321.0, None),
    ]
    assert [[(one.pid, one.memory_mib) for one in gpu.processes] for gpu in report.gpus] == [[], [(4242, 40230.0)]]


def test_amd_smi_reads_the_list_of_rocm_6_and_the_object_of_rocm_7() -> None:
    older, newer = (amd_smi.read_amd_smi(amd(static)) for static in (AMD_STATIC, {"gpu_data": AMD_STATIC}))

    assert older == newer
    assert older is not None
    assert older.driver == "6.10.5"
    assert [(gpu.pci, gpu.name, gpu.used_mib, gpu.uncorrected) for gpu in older.gpus] == [
        ("0000:0c:00.0", "AMD Instinct MI300X", 283.0, 0),
        ("0000:22:00.0", None, None, 2),
    ]


def test_a_gpu_without_processes_says_so_in_words_and_has_none() -> None:
    report = amd_smi.read_amd_smi(amd(AMD_STATIC))

    assert report is not None
    assert [[(one.pid, one.name, one.memory_mib) for one in gpu.processes] for gpu in report.gpus] == [
        [],
        [(4242, "python", 2048.0)],
    ]


def test_rocm_smi_is_asked_where_amd_smi_is_not_there() -> None:
    tools = Tools({rocm_smi.CARDS: json.dumps(ROCM_CARDS), rocm_smi.PROCESSES: json.dumps(ROCM_PROCESSES)})
    reading = read_tools("amd", tools)

    assert reading.report is not None
    assert (reading.report.tool, reading.report.driver) == ("rocm-smi", "6.7.0")
    assert [round(gpu.used_mib or -1) for gpu in reading.report.gpus] == [284, -1]
    assert [one.pid for one in reading.report.gpus[0].processes] == [4242]


def test_tools_that_are_not_there_or_print_something_else_give_nothing() -> None:
    broken = Tools(
        {amd_smi.STATIC: "WARNING: no GPU\n", rocm_smi.CARDS: "[]", nvidia_smi.GPUS: "No devices were found\n"}
    )

    assert [read_tools(vendor, tools).report for vendor in ("amd", "nvidia", "cpu") for tools in (Tools(), broken)] == [
        None
    ] * 6
