"""Errors of hardware and drivers in the kernel's log, within a window of time.

Reads /dev/kmsg below a root: records as the kernel's Documentation/ABI/testing/dev-kmsg describes them, with the
microseconds since the machine was started. Refuses nothing: a log that may not be read is unknown, which is usual in a
container, and says nothing against a node.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.preflight.finding import Finding

_PATTERNS = {
    "NVIDIA driver error (Xid)": r"NVRM: Xid",
    "GPU lost from the bus": r"GPU has fallen off the bus|amdgpu.*\bdevice lost|amdgpu.*GPU reset(?!.*succeeded)",
    "AMD GPU fault": r"amdgpu.*(uncorrectable|page fault|ring .* timeout|ras .*poison|RAS ERREVENT)",
    "memory error that was not corrected": r"EDAC.*\bUE\b|Uncorrect(ed|able) (hardware )?(memory )?error",
    "machine check": r"mce: \[Hardware Error\]|Machine Check (Exception|Event)|\[Hardware Error\]",
    "PCIe error": r"PCIe Bus Error: severity=Uncorrect(ed|able)|AER: .*(Fatal|Uncorrected)",
    "process stuck in the kernel": r"blocked for more than \d+ seconds|soft lockup|hard LOCKUP|rcu.*detected stalls",
    "network adapter error": r"mlx5_core.*(health compromised|FW (fatal|assert)|internal error)|bnxt.*firmware.*fatal",
    "disk error": r"I/O error, dev|Buffer I/O error|EXT4-fs error|XFS .*(corruption|shutdown)|nvme.*(timeout|abort)",
}
_COMPILED = {what: re.compile(pattern, re.IGNORECASE) for what, pattern in _PATTERNS.items()}
_SHOWN = 160
_RECORD = 1 << 13
"""The longest record: the kernel writes none over 8 KiB, and gives an error for a smaller buffer."""


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A line of the kernel: its level (0 worst to 7) and the seconds since the start of the machine."""

    level: int
    at_s: float
    text: str


def kernel_log_finding(root: Path, minutes: float) -> Finding:
    """Search the log below `root` over the last `minutes`."""
    try:
        records, now_s = read_records(root / "dev/kmsg"), _uptime_s(root)
    except OSError as error:
        detail = f"the kernel's log cannot be read ({error.strerror})"
        return Finding(test="kernel_log", word="unknown", detail=detail, weak=True)
    found = errors_in(records, since_s=now_s - 60 * minutes)
    if not found:
        return Finding(test="kernel_log", word="pass", detail=f"no error in {minutes:g} minutes")
    (what, last), *others = reversed(found)
    more = f" (and {len(others)} more)" if others else ""
    return Finding(test="kernel_log", word="fail", detail=f"{what}{more}: {last.text[:_SHOWN]}", value=len(found))


def errors_in(records: list[LogRecord], since_s: float) -> list[tuple[str, LogRecord]]:
    """Return what went wrong since a moment, with the record that says so, oldest first."""
    recent = [record for record in records if record.at_s >= since_s]
    kinds = (
        (record, next((what for what, form in _COMPILED.items() if form.search(record.text)), None))
        for record in recent
    )
    return [(what, record) for record, what in kinds if what is not None]


def read_records(path: Path) -> list[LogRecord]:
    """Read all records that the log still has; raises OSError where it may not be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        chunks = []
        while True:
            try:
                chunk = os.read(descriptor, _RECORD)
            except BlockingIOError:  # that was the newest
                break
            except BrokenPipeError:  # overwritten while it was read; the next read goes on with the oldest left
                continue
            if not chunk:
                break
            chunks.append(chunk)
    finally:
        os.close(descriptor)
    text = b"".join(chunks).decode(errors="replace")
    return [record for line in text.splitlines() if (record := _record(line)) is not None]


def _record(line: str) -> LogRecord | None:
    """Read `level,sequence,microseconds,flags;text`; lines that go on begin with a space and hold no text."""
    head, separator, text = line.partition(";")
    fields = head.split(",")
    if not separator or len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()):
        return None
    return LogRecord(level=int(fields[0]) & 7, at_s=int(fields[2]) / 1e6, text=text)


def _uptime_s(root: Path) -> float:
    return float((root / "proc/uptime").read_text().split()[0])
