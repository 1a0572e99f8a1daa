"""The patch that leaves the queries of a latent attention without a latent of their own as they are."""

from __future__ import annotations

from typing import Any

from primus_hydra.patches.megatron.conditions import BACKENDS
from primus_hydra.patching import PatchContext, register_patch


@register_patch(
    "megatron.mla-plain-queries",
    backend=BACKENDS,
    phase="build_args",
    versions=">=0.19,<0.20",
    tags=("correctness",),
    why="a latent attention whose queries have no latent (DeepSeek-V2-Lite) asks for its norms and gets one too many, "
    "in front of the projection of the queries; without Transformer Engine it cannot be built: RuntimeError",
)
def project_queries_without_a_norm(context: PatchContext) -> None:
    """Take the plain projection for the queries; the norm of keys and values stays."""
    from megatron.core.transformer.mla_qk_norm_config import QKNormConfigResolver

    original = QKNormConfigResolver._mla_fused_linear_or_default

    def plain_for_queries(self: Any, module_spec: Any, module_name: str) -> Any:
        if module_name == "linear_q_proj":
            return self._non_fused_or_default(module_spec, module_name)
        return original(self, module_spec, module_name)

    QKNormConfigResolver._mla_fused_linear_or_default = plain_for_queries
