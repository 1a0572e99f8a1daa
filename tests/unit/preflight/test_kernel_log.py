"""The kernel's log: what counts as an error, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.preflight.kernel_log import kernel_log_finding
from tests.unit.host.machines import write

LINES = {
    "xid": "NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.",
    "ras": "amdgpu 0000:83:00.0: amdgpu: 2 uncorrectable hardware errors detected in total in umc block",
    "mce": "mce: [Hardware Error]: Machine check events logged",
    "aer": "pcieport 0000:80:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
    "hung": "INFO: task python:4242 blocked for more than 120 seconds.",
    "mlx": "mlx5_core 0000:0c:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
    "disk": "blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x0:(READ)",
}


def machine(root: Path, *lines: tuple[float, str], uptime_s: float = 10_000.0) -> Path:
    records = "".join(
        f"4,{number},{int(at * 1e6)},-;{text}\n SUBSYSTEM=pci\n" for number, (at, text) in enumerate(lines)
    )
    return write(root, {"dev/kmsg": records, "proc/uptime": f"{uptime_s} 1.0\n"})


@pytest.mark.parametrize("name", LINES)
def test_an_error_of_hardware_or_driver_fails_the_node(name: str, tmp_path: Path) -> None:
    finding = kernel_log_finding(machine(tmp_path, (9_900.0, LINES[name])), minutes=15)

    assert finding.word == "fail"
    assert LINES[name][:40] in finding.detail


def test_an_error_before_the_window_does_not_count(tmp_path: Path) -> None:
    root = machine(tmp_path, (9_000.0, LINES["xid"]))

    assert kernel_log_finding(root, minutes=15).word == "pass"
    assert kernel_log_finding(root, minutes=17).word == "fail"


def test_what_a_healthy_machine_says_is_no_error(tmp_path: Path) -> None:
    lines = (
        "br0: port 5(v-node4) entered forwarding state",
        "amdgpu 0000:03:00.0: amdgpu: MEM ECC is active.",
        "RAS: Correctable Errors collector initialized.",
        "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug SHPCHotplug PME AER PCIeCapability LTR]",
        "EDAC MC0: Giving out device to module amd64_edac controller F19h_M10h",
    )

    assert kernel_log_finding(machine(tmp_path, *((9_990.0, line) for line in lines)), minutes=15).word == "pass"


def test_the_newest_error_is_shown_and_the_others_are_counted(tmp_path: Path) -> None:
    finding = kernel_log_finding(machine(tmp_path, (9_800, LINES["mce"]), (9_900, LINES["xid"])), minutes=15)

    assert finding.detail.startswith("NVIDIA driver error (Xid) (and 1 more): NVRM: Xid")


def test_a_log_that_may_not_be_read_says_nothing_against_a_node(tmp_path: Path) -> None:
    finding = kernel_log_finding(tmp_path, minutes=15)

    assert (finding.word, finding.weak) == ("unknown", True)
