"""Conversions one after the other in one process, for tests: `python -m tests.integration.conversions FILE ANSWERS`.

FILE holds a list of requests; their last words go into the file named second.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from primus_hydra.weights.request import ConvertRequest


def convert_all(requests: Sequence[ConvertRequest], folder: Path) -> list[dict[str, Any]]:
    """Carry out requests in a process of their own; return the last words of each."""
    file, answers = folder / "requests.json", folder / "answers.json"
    file.write_text(json.dumps([asdict(request) for request in requests]))
    command = [sys.executable, "-m", "tests.integration.conversions", str(file), str(answers)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert answers.is_file(), done.stderr
    found: list[dict[str, Any]] = json.loads(answers.read_text())
    return found


def _main(file: Path, answers: Path) -> None:
    from primus_hydra.convert.__main__ import main

    said = []
    for number, tree in enumerate(json.loads(file.read_text())):
        request = file.with_name(f"request-{number}.json")
        ConvertRequest(**tree).write(request)
        out = io.StringIO()
        main(request, out)
        said.append(json.loads(out.getvalue().splitlines()[-1]))
    answers.write_text(json.dumps(said))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
