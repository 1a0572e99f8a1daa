"""Hugging Face's names for weights of families that torchtitan's own conversion of Qwen3 does not name."""

from __future__ import annotations

from typing import Any

from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter

_LAYER = "model.layers.{}."
_BLOCK = "layers.{}."


class Qwen2StateDictAdapter(Qwen3StateDictAdapter):  # type: ignore[misc]
    """Adds the biases of queries, keys and values."""

    def __init__(self, model_config: Any, hf_assets_path: str | None) -> None:
        super().__init__(model_config, hf_assets_path)
        self.from_hf_map |= {
            f"{_LAYER}self_attn.{part}_proj.bias": f"{_BLOCK}attention.qkv_linear.w{part}.bias" for part in "qkv"
        }


class MixtralStateDictAdapter(Qwen3StateDictAdapter):  # type: ignore[misc]
    """Translates Mixtral's names of router and experts into those of Qwen3, and back."""

    _ROUTER = ("block_sparse_moe.gate.", "mlp.gate.")
    _EXPERTS = ("block_sparse_moe.experts.", "mlp.experts.")
    _MATRICES = (
        (".w1.weight", ".gate_proj.weight"),
        (".w3.weight", ".up_proj.weight"),
        (".w2.weight", ".down_proj.weight"),
    )

    def to_hf(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the weights under Mixtral's names."""
        return {self._mixtral(name): value for name, value in super().to_hf(state_dict).items()}

    def from_hf(self, hf_state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return torchtitan's weights from those under Mixtral's names."""
        return dict(super().from_hf({self._qwen3(name): value for name, value in hf_state_dict.items()}))

    def _mixtral(self, name: str) -> str:
        return self._renamed(name, [(ours, theirs) for theirs, ours in self._pairs(name)])

    def _qwen3(self, name: str) -> str:
        return self._renamed(name, self._pairs(name))

    def _pairs(self, name: str) -> list[tuple[str, str]]:
        return [self._ROUTER, self._EXPERTS, *(self._MATRICES if ".experts." in name else ())]

    @staticmethod
    def _renamed(name: str, pairs: list[tuple[str, str]]) -> str:
        for old, new in pairs:
            name = name.replace(old, new)
        return name
