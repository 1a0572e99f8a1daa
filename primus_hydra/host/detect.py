"""Which platform this machine is: its GPUs by the kernel's files and the drivers' tools, matched with platform files.

Never imports torch and never touches a device. A GPU that no platform file names is not guessed at: the detection says
what was seen, and its problem says how to go on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from primus_hydra.errors import Problem, UserError
from primus_hydra.host.amd import find_amd, with_product_names
from primus_hydra.host.cores import Cores, read_cores
from primus_hydra.host.gpu import Gpu, visible
from primus_hydra.host.nvidia import find_nvidia
from primus_hydra.host.tool import RunTool, run_tool

CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What this machine is. `platform` is None if a GPU is unknown or GPUs differ; `notes` are worth a line each."""

    platform: str | None
    gpus: tuple[Gpu, ...]
    cores: Cores
    notes: tuple[str, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs that this process may use."""
        return len(self.gpus)

    @property
    def mixed(self) -> bool:
        """Whether the GPUs are of several kinds."""
        return len({gpu.label for gpu in self.gpus}) > 1

    @property
    def seen(self) -> str:
        """The machine in a few words: `8 x AMD Instinct MI300X (1002:74a1, gfx942)`."""
        if not self.gpus:
            return f"no GPU, {self.cores.physical} cores"
        return ", ".join(f"{count} x {label}" for label, count in Counter(gpu.label for gpu in self.gpus).items())

    @property
    def problem(self) -> Problem | None:
        """Why no platform can be named, and the ways out; None if one is."""
        if self.platform is not None:
            return None
        if self.mixed:
            names = "CUDA_VISIBLE_DEVICES" if self.gpus[0].vendor == "nvidia" else "ROCR_VISIBLE_DEVICES"
            return Problem(
                key="platform",
                what=f"this machine has GPUs of several kinds: {self.seen}",
                hint=f"leave one kind visible with {names}, or use platform=cpu",
            )
        return Problem(
            key="platform",
            what=f"no platform file knows this machine's GPU: {self.seen}",
            hint="add platform/NAME.yaml, a copy of the nearest file, with "
            f"product_names: ['{self.gpus[0].names[0]}'], to a folder given by --config-dir; or use platform=cpu",
        )


def detect_platform(
    candidates: Mapping[str, Sequence[str]],
    *,
    root: Path = Path("/"),
    run: RunTool = run_tool,
    env: Mapping[str, str] | None = None,
) -> Detection:
    """Say what this machine is, in the names of `candidates` (platform -> product name patterns; first match wins).

    `root` holds /proc, /sys and /dev, `run` calls a tool, `env` (this process's own by default) may hide GPUs. Without
    a usable GPU the platform is `cpu`.
    """
    nvidia, amd = find_nvidia(root, run), find_amd(root)
    gpus = visible((*nvidia.gpus, *amd.gpus), os.environ if env is None else env)
    if any(gpu.vendor == "amd" and _platform_of(gpu, candidates) is None for gpu in gpus):
        # Only now: amd-smi takes a second, and a known PCI id needs no name.
        named = with_product_names([gpu for gpu in gpus if gpu.vendor == "amd"], run)
        gpus = (*(gpu for gpu in gpus if gpu.vendor != "amd"), *named)
    platforms = {_platform_of(gpu, candidates) for gpu in gpus} or {CPU}
    return Detection(
        platform=platforms.pop() if len(platforms) == 1 else None,
        gpus=gpus,
        cores=read_cores(root),
        notes=(*nvidia.notes, *amd.notes),
    )


def platform_names(config_dirs: Sequence[Path]) -> dict[str, list[str]]:
    """Read `platform/*.yaml` below each folder: choice -> product name patterns; an earlier folder's file wins.

    Raises UserError for a file that is not YAML or whose `platform.product_names` is not a list of texts.
    """
    names: dict[str, list[str]] = {}
    for file in (file for folder in config_dirs for file in sorted(folder.glob("platform/*.yaml"))):
        if file.stem not in names:
            names[file.stem] = _product_names(file)
    return names


def _product_names(file: Path) -> list[str]:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(Problem(what=f"the platform file cannot be read: {error}", where=str(file))) from error
    names: Any = _below(_below(tree, "platform"), "product_names")
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(Problem(key="platform.product_names", what="expects a list of texts", where=str(file)))
    return names


def _below(node: Any, key: str) -> Any:
    return node.get(key) if isinstance(node, dict) else None


def _platform_of(gpu: Gpu, candidates: Mapping[str, Sequence[str]]) -> str | None:
    return next((name for name, patterns in candidates.items() if gpu.matches(patterns)), None)
