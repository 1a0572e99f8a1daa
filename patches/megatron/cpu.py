"""The patch that lets Megatron train on a processor."""

from __future__ import annotations

from primus_hydra.patches.megatron.conditions import BACKENDS, VERSIONS, on_cpu
from primus_hydra.patching import PatchContext, register_patch


@register_patch(
    "megatron.cpu",
    backend=BACKENDS,
    phase="before_import",
    versions=VERSIONS,
    condition=on_cpu,
    priority=20,
    tags=("cpu",),
    why="Megatron allocates on torch.cuda.current_device(), draws from the GPU's random generator and compares tensor "
    "types with those of a GPU: on a processor building the model already raises",
)
def see_the_cpu(context: PatchContext) -> None:
    """Let Megatron's modules, and no others, see a torch whose GPU is the processor."""
    from primus_hydra.backends.megatron import cpu_import

    cpu_import.install()
