"""A preflight over four real nodes of a Slurm: one behind a slow link, one that stops to answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.tasks import measuring_submit
from tests.slurm.cluster import Cluster, _space
from tests.slurm.conftest import Login

pytestmark = pytest.mark.ranks

TIMEOUT_S = 240
SLOW_MBIT = 40
"""What the slow node's link lets through: 5 MB/s, where the others exchange hundreds."""


def start(login: Login, *overrides: str) -> subprocess.Popen[str]:
    """Type the command on the login node."""
    words = ["platform=cpu", "task=preflight", "hydra/launcher=submitit", "launch.nodes=4", *overrides]
    return subprocess.Popen(
        login.cluster.argv([sys.executable, "-m", "primus_hydra", *words]),
        cwd=login.folder,
        env=login.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(command: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = command.communicate(timeout=TIMEOUT_S)
    return command.returncode, output


def report(login: Login) -> dict[str, Any]:
    (file,) = login.folder.glob("preflight/*/report.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def listed(login: Login, name: str) -> list[str]:
    (file,) = login.folder.glob(f"preflight/*/{name}_nodes.txt")
    return file.read_text().split()


@pytest.fixture
def slow_node2(cluster: Cluster) -> Any:
    """Shape what comes out of node2 and what goes to it."""
    places = ((_space(os.getpid(), "node2"), "eth0"), (_space(os.getpid(), "sw"), "v-node2"))
    for space, device in places:
        shape = ["tbf", "rate", f"{SLOW_MBIT}mbit", "burst", "32kbit", "latency", "400ms"]
        subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", *shape], check=True)
    yield
    for space, device in places:
        subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "del", "dev", device, "root"], check=True)


def stop(login: Login, node: str) -> int:
    """Stop the task of a node once the first node is at work, as a machine that hangs; return the process."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        at_work = any(login.folder.glob("preflight/*/beat.json"))
        for pid in login.cluster.processes(node) if at_work else ():
            if b"primus_hydra.measuring_node" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:6]:
                os.kill(pid, signal.SIGSTOP)
                return pid
        time.sleep(0.05)
    raise AssertionError(f"no task came to {node}")


def test_a_slow_node_and_a_silent_one_are_found_and_the_others_pass(login: Login, slow_node2: None) -> None:
    began = time.monotonic()
    command = start(
        login,
        "task.tests=[shm,clock,all_reduce]",
        "platform.limits.network_gb_s=0.02",
        "task.sizes_mib=[1]",
        "task.limit_s=8",
        "task.start_s=90",
    )
    stop(login, "node3")
    code, output = ended(command)
    found = report(login)
    nodes = {node["host"]: node for node in found["nodes"]}

    assert code == 3, output
    assert {host: node["verdict"] for host, node in nodes.items()} == {
        "node1": "pass",
        "node2": "fail",
        "node3": "fail",
        "node4": "pass",
    }, output
    assert "all_reduce" in nodes["node2"]["reasons"][0]
    assert "it did not answer within 8 s" in nodes["node3"]["reasons"][0]
    assert (listed(login, "passing"), listed(login, "failing")) == (["node1", "node4"], ["node2", "node3"])
    assert time.monotonic() - began < 120
    (log,) = login.folder.glob("preflight/*/logs/node-0.log")
    assert "node1, node2: bad" in log.read_text()  # the search, with real measurements
    assert "node1, node4: good" in log.read_text()


def test_a_first_node_that_hangs_is_a_failure_and_the_others_are_unknown(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_submit, "STALE_S", 6.0)
    command = login.start(
        *("platform=cpu", "task=preflight", "hydra/launcher=submitit", "launch.nodes=3"),
        *("task.suite=smoke", "task.skip=[allocate,gemm,kernel_log]", "task.limit_s=30"),
    )
    stop(login, "node1")
    code = command.wait(TIMEOUT_S)
    found = report(login)

    assert code == 3, command.output
    verdicts = {node["host"]: node["verdict"] for node in found["nodes"]}
    assert verdicts == {"node1": "fail", "node2": "unknown", "node3": "unknown"}, command.output
    assert not found["complete"]
    assert (listed(login, "passing"), listed(login, "failing")) == ([], ["node1"])
