"""The process that converts, seen from the command: started, listened to, and ended with it. Imports no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.run.space import size_text
from primus_hydra.runtime.tether import PARENT_VARIABLE
from primus_hydra.ui.screen import show
from primus_hydra.weights.export import partial_folder
from primus_hydra.weights.request import ConvertRequest, ConvertResult

_MODULE = "primus_hydra.convert"


def converted(request: ConvertRequest, folder: Path) -> ConvertResult | None:
    """Let the other process work, and tell what it says; None if somebody stopped it."""
    request.write(folder / "request.json")
    with (folder / "words.txt").open("w+", encoding="utf-8", errors="replace") as words:
        try:
            with _process(folder / "request.json", words) as process:
                answer = _listen(process)
        except KeyboardInterrupt:
            show(f"stopped; the same command goes on from {partial_folder(Path(request.output))}\n", sys.stdout)
            return None
        if answer is None:
            words.seek(0)
            raise _vanished(process.returncode, words.read())
    return _judged(answer)


@contextmanager
def _process(request: Path, words: IO[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, str(request)],
        stdout=subprocess.PIPE,
        stderr=words,
        text=True,
        env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        start_new_session=True,  # a Ctrl-C is ours to handle
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _listen(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    answer: dict[str, Any] | None = None
    for line in process.stdout or ():
        said: dict[str, Any] = json.loads(line)
        if "stage" in said:
            show(f"{said['stage']}\n", sys.stdout)
        elif "file" in said:
            show(f"  {said['file']}: {size_text(said['bytes'])} of {size_text(said['of'])}\n", sys.stdout)
        else:
            answer = said
    process.wait()
    return answer


def _judged(answer: dict[str, Any]) -> ConvertResult:
    if "result" in answer:
        return ConvertResult.from_json(answer["result"])
    if answer["failure"] == "bug":
        raise RuntimeError(f"the conversion failed:\n{answer['traceback']}")
    problems = [Problem(**problem) for problem in answer["problems"]]
    raise UserError(*problems) if answer["failure"] == "user" else HostError(*problems)


def _vanished(code: int, words: str) -> HostError:
    by = f"signal {-code}" if code < 0 else f"code {code}"
    last = words.strip().splitlines()[-1:]
    hint = "signal 9 often means that memory ran out; the same command goes on where it ended" if code == -9 else None
    return HostError(Problem(what=f"the process of the conversion ended by {by}: {' '.join(last)}", hint=hint))
