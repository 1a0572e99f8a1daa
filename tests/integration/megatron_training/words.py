"""The two ways to train with Megatron, as the keys of a job."""

from __future__ import annotations

from typing import Any

UPSTREAM: dict[str, Any] = {
    "backend._target_": "primus_hydra.backends.megatron.training.adapter.MegatronTrainingAdapter",
    "backend.name": "megatron_training",
}
OURS: dict[str, Any] = {
    "backend._target_": "primus_hydra.backends.megatron.adapter.MegatronAdapter",
    "backend.name": "megatron",
}
