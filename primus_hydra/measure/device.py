"""The process that holds one device: `python -m primus_hydra.measure.device LOCAL_RANK gpu|cpu`. Imports torch.

Reads questions from its standard input, a JSON object a line, and answers each with one line: {"number", "value"} or
{"number", "error"}. Whatever libraries print goes to the standard error. It ends with its input, and with its parent.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from primus_hydra.runtime.tether import die_with_parent

_OPERATIONS = {
    "allocate": "primus_hydra.measure.kernels",
    "gemm": "primus_hydra.measure.kernels",
    "copy": "primus_hydra.measure.kernels",
    "attention": "primus_hydra.measure.kernels",
    "store": "primus_hydra.measure.collectives",
    "collective": "primus_hydra.measure.collectives",
    "checkpoint": "primus_hydra.measure.storage",
}
"""Questions, and the module with the function of that name that answers them."""


def main() -> int:
    """Answer until the input ends."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a library that prints must not speak into the answers
    local_rank, kind = int(sys.argv[1]), sys.argv[2]
    try:
        ready: dict[str, Any] = {"value": _take_device(local_rank, kind)}
    except Exception as error:
        ready = {"error": _words(error)}
    _say(answers, {"number": 0, **ready})
    for line in sys.stdin:
        request = json.loads(line)
        _say(answers, {"number": request["number"], **_answer(request)})
    return 0


def _take_device(local_rank: int, kind: str) -> dict[str, Any]:
    import torch

    from primus_hydra.measure.held import hold

    device = hold(local_rank, on_gpu=kind == "gpu")
    on_gpu = device.type == "cuda"
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "memory_gib": torch.cuda.get_device_properties(device).total_memory / 2**30 if on_gpu else None,
        "runtime": torch.version.hip or torch.version.cuda if on_gpu else None,
        "collectives": _library() if on_gpu else "gloo",
        "threads": torch.get_num_threads(),
    }


def _library() -> str:
    """Return the version of NCCL, or of RCCL, which torch calls NCCL too."""
    import torch

    found = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, found))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        operation = request["do"]
        function: Callable[..., Any] = getattr(importlib.import_module(_OPERATIONS[operation]), operation)
        wanted = {name: value for name, value in request.items() if name not in ("do", "number")}
        return {"value": function(**wanted)}
    except Exception as error:
        traceback.print_exc()
        return {"error": _words(error)}


def _words(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    code = main()
    # A device that hangs would hang the interpreter's own clean-up too.
    os._exit(code)
