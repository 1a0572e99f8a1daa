"""A driver's tool that is missing, fails or hangs gives nothing, and never an exception."""

from __future__ import annotations

import sys

from primus_hydra.host import tool
from primus_hydra.host.tool import run_tool


def test_a_tool_that_works_gives_its_text():
    assert run_tool([sys.executable, "-c", "print('NVIDIA H200')"]) == "NVIDIA H200\n"


def test_a_tool_that_is_not_installed_gives_nothing():
    assert run_tool(["no-such-smi"]) is None


def test_a_tool_that_fails_gives_nothing_of_what_it_printed():
    assert run_tool([sys.executable, "-c", "print('No devices were found'); raise SystemExit(6)"]) is None


def test_a_tool_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(tool, "_TIMEOUT_S", 0.2)
    assert run_tool([sys.executable, "-c", "import time; time.sleep(60)"]) is None
