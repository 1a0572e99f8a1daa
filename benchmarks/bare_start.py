"""What torchrun starts in `first_collective.py` and `restart.py`: a trainer's imports, a process group, a collective.

    torchrun --standalone --nproc-per-node N benchmarks/bare_start.py BACKEND FOLDER [SECONDS]

Each rank writes FOLDER/RANK-RESTART when it has passed its first all_reduce: its process id, and the time
(CLOCK_MONOTONIC). With SECONDS it goes on reducing for so long, so that a rank can be killed meanwhile.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

IMPORTS = {
    "torchtitan": ("torchtitan.trainer", "torchtitan.models.llama3"),
    "megatron": (
        "megatron.core",
        "megatron.core.dist_checkpointing",
        "megatron.core.distributed",
        "megatron.core.models.gpt.gpt_layer_specs",
        "megatron.core.models.gpt.gpt_model",
        "megatron.core.optimizer",
        "megatron.core.pipeline_parallel",
    ),
}
"""Modules of the backend that its trainer imports."""


def main(backend: str, folder: Path, seconds: float) -> None:
    """Import, meet the other ranks, and say when."""
    for name in IMPORTS[backend]:
        importlib.import_module(name)
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    now = time.monotonic()
    note = folder / f"{os.environ['RANK']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    note.with_suffix(".new").write_text(f"{os.getpid()} {now}")
    note.with_suffix(".new").rename(note)
    while time.monotonic() < now + seconds:
        time.sleep(0.05)
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
