"""What runs around the ranks: scripts and functions of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class HooksConfig:
    """Hooks of an attempt: {script: FILE, args: [...], name: ..., timeout_s: ...}, or {_target_: FUNCTION, ...}."""

    pre_launch: list[dict[str, Any]] = key(
        [], "Run once, on the first node, after all checks and before any rank starts."
    )
    pre_train: list[dict[str, Any]] = key([], "Run once on every node before its ranks start.")
    post_train: list[dict[str, Any]] = key([], "Run once, on the first node, after the ranks' end, however it came.")
    timeout_s: float = key(600.0, "Longest time of a hook that says none of its own.", unit="s", gt=0)
