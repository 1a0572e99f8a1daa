"""The patch registry: registered changes to a backend, and what decides whether each applies."""

from primus_hydra.patching.context import PHASES, PatchContext, Phase
from primus_hydra.patching.loading import load_patches
from primus_hydra.patching.registry import REGISTRY, Patch, PatchDefinitionError, Registry, register_patch
from primus_hydra.patching.runner import PatchError, PatchRecord, expected_records, run_patches
from primus_hydra.patching.selection import Decision, Selection, decide

__all__ = [
    "PHASES",
    "REGISTRY",
    "Decision",
    "Patch",
    "PatchContext",
    "PatchDefinitionError",
    "PatchError",
    "PatchRecord",
    "Phase",
    "Registry",
    "Selection",
    "decide",
    "expected_records",
    "load_patches",
    "register_patch",
    "run_patches",
]
