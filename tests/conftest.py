"""Settings that all tests share, and the rule that CI skips nothing it should run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

CANNOT_BE_HAD = "cannot be had here: "
"""How the reason of a skip begins where the test needs what CI's machine cannot have (a GPU, a licence)."""

# Two busy cores make timings unreliable; a found failure must be found again by everyone.
settings.register_profile("project", deadline=None, derandomize=True, print_blob=True, max_examples=60)
settings.load_profile("project")

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note each skip whose reason is not that something cannot be had."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if CANNOT_BE_HAD not in reason:
        _skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run in CI if a test was skipped that should have run there."""
    if _skipped and os.environ.get("CI") and not hasattr(session.config, "workerinput"):
        print("\nCI must run these tests, but they were skipped:\n" + "\n".join(_skipped))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
