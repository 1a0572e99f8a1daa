"""Patches of `megatron.training`, upstream's own loop: what it needs on a processor, in Python 3.11, in a package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from primus_hydra.patches.megatron.conditions import on_cpu
from primus_hydra.patching import PatchContext, register_patch

_BACKEND = "megatron_training"
_VERSIONS = ">=0.17,<0.20"


def _helpers_built(context: PatchContext) -> bool:
    """The index builder of Megatron's data sets is compiled."""
    # To find the module itself would import the packages above it, and torch with them.
    package = importlib.util.find_spec("megatron")
    folders = (package.submodule_search_locations or ()) if package else ()
    return any(list(Path(folder, "core", "datasets").glob("helpers_cpp*.so")) for folder in folders)


def _before_python_3_12(context: PatchContext) -> bool:
    """Python is older than upstream asks for."""
    return sys.version_info < (3, 12)


@register_patch(
    "megatron-training.python-3.11",
    backend=_BACKEND,
    phase="before_import",
    versions=_VERSIONS,
    condition=_before_python_3_12,
    tags=("python",),
    why="megatron.training imports typing.override, which Python has had since 3.12: it cannot be imported before",
)
def lend_override(context: PatchContext) -> None:
    """Let `typing` have the decorator that typing_extensions brings for older Pythons."""
    import typing

    import typing_extensions

    typing.override = typing_extensions.override  # type: ignore[attr-defined,unused-ignore]


@register_patch(
    "megatron-training.cpu",
    backend=_BACKEND,
    phase="build_args",
    versions=_VERSIONS,
    condition=on_cpu,
    tags=("cpu",),
    why="megatron.training asserts that CUDA is there, makes its groups only if it counts a GPU, and warms up fused "
    "kernels: on a processor it stops before it has a model",
)
def start_without_a_gpu(context: PatchContext) -> None:
    """Let upstream start on a processor, as one device a rank, and leave out the warm-up of kernels."""
    import functools

    from megatron.training import initialize, training

    from primus_hydra.backends.megatron.cpu_torch import TORCH, Overlay

    initialize.torch = Overlay(TORCH, {"cuda": Overlay(TORCH.cuda, {"device_count": lambda: 1})})
    training.initialize_megatron = functools.partial(initialize.initialize_megatron, allow_no_cuda=True)
    training.set_jit_fusion_options = lambda *args, **kwargs: None


@register_patch(
    "megatron-training.built-helpers",
    backend=_BACKEND,
    phase="build_args",
    versions=_VERSIONS,
    condition=_helpers_built,
    tags=("build",),
    why="megatron.training runs make in the folder of its index builder at every start; packages bring the builder "
    "compiled and without a Makefile, so rank 0 ends there and the other ranks wait for it",
)
def use_built_helpers(context: PatchContext) -> None:
    """Compile nothing."""
    from megatron.core.datasets import utils

    utils.compile_helpers = lambda: None
