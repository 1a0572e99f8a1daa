"""Every documented benchmark can be run as it is written; the one that is short enough is run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.documented import ROOT, benchmarks


@pytest.mark.parametrize("words", benchmarks(), ids=" ".join)
def test_a_documented_benchmark_knows_its_options(words: list[str]) -> None:
    told = subprocess.run([sys.executable, ROOT / words[0], "--help"], capture_output=True, text=True, timeout=60)

    assert told.returncode == 0, told.stderr
    assert {word for word in words if word.startswith("--")} <= set(told.stdout.replace("]", " ").split())


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("first_collective.py", ["--ranks", "2", "--ways", "fork_server"], "imports and patches"),
        ("restart.py", ["--backend", "megatron"], "a new step after"),
    ],
)
def test_a_benchmark_of_the_launch_runs(script: str, arguments: list[str], says: str) -> None:
    backend = [] if "--backend" in arguments else ["--backend", "torchtitan"]
    command = [sys.executable, ROOT / "benchmarks" / script, "--rounds", "1", *backend, *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert told.returncode == 0, told.stderr
    assert says in told.stdout
