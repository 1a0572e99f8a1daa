"""A patch that notes when each rank has passed its first collective, for `first_collective.py` and `restart.py`.

It is installed like any package with patches of its own, in a folder that the benchmark puts on PYTHONPATH, and does
the same in both backends: the process group is opened as the trainer opens it, and one number is reduced over it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from primus_hydra.patching import PatchContext, register_patch
from primus_hydra.runtime.pulse import pulse_folder
from primus_hydra.runtime.stages import Stages


@register_patch(
    "benchmark.first-collective",
    backend=("torchtitan", "megatron"),
    phase="setup",
    why="Nothing else tells when the first collective of all ranks is over.",
)
def note_first_collective(context: PatchContext) -> None:
    """Reduce one number as soon as there is a process group, and note the stage `collective`."""
    import torch
    import torch.distributed as dist

    open_group = dist.init_process_group

    def opened(*args: Any, **kwargs: Any) -> None:
        open_group(*args, **kwargs)
        dist.all_reduce(torch.ones(1))
        _stages().reached("collective")

    dist.init_process_group = opened


def install(site: Path) -> None:
    """Make the patch known to every Python that has `site` on its path."""
    info = site / "primus_start_probe-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: primus-start-probe\nVersion: 1.0\n")
    points = "".join(f"{backend} = start_probe\n" for backend in ("torchtitan", "megatron"))
    (info / "entry_points.txt").write_text(f"[primus_hydra.patches]\n{points}")
    (site / "start_probe.py").write_text(Path(__file__).read_text(encoding="utf-8"))


def _stages() -> Stages:
    folder = pulse_folder(os.environ["PRIMUS_RUN_DIR"], int(os.environ["PRIMUS_ATTEMPT"]))
    return Stages(folder, f"rank-{os.environ['RANK']}", int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
