"""The patches of `backend=megatron_training`: those of Megatron, each of which names the backends it is for."""

from __future__ import annotations

import importlib
import pkgutil

from primus_hydra.patches import megatron

for _module in pkgutil.iter_modules(megatron.__path__, prefix=f"{megatron.__name__}."):
    importlib.import_module(_module.name)
