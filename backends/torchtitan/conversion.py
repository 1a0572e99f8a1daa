"""torchtitan's checkpoints for `task=convert`: which tensors there are, and what its own model makes of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torchtitan.config.override import OverrideConfig, apply_overrides
from torchtitan.models.common.moe import GroupedExperts

from primus_hydra.backends.torchtitan.cpu_attention import create_block_mask_on_cpu
from primus_hydra.backends.torchtitan.hf_pieces import stored_parts
from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.convert.contract import NativeFormat
from primus_hydra.convert.layout import NativeLayout, StoredPart
from primus_hydra.errors import Problem, raise_all
from primus_hydra.weights.tensors import expected_tensors

_CPU_ATTENTION = "primus_hydra.backends.torchtitan.cpu_attention.flex_on_cpu"


class TorchTitanFormat(NativeFormat):
    """Checkpoints of torchtitan; runs of ours keep an optimizer beside the weights, which is passed over."""

    backend: ClassVar[str] = "torchtitan"
    embedding: ClassVar[str] = "tok_embeddings.weight"

    def layout(self, vocab_size: int, saved: Collection[str] | None = None) -> NativeLayout:
        """Return the layout; the model is built without memory."""
        expected = expected_tensors(self.job.model, vocab_size)
        with torch.device("meta"):
            model = self._spec(vocab_size, 64).model.build()
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        parts: list[StoredPart] = []
        problems = []
        for key, shape in shapes.items():
            found = stored_parts(key, shape, self.job.model, expected)
            parts += found or ()
            if found is None:
                problems.append(
                    Problem(key="model", what=f"torchtitan's {key} has no counterpart in Hugging Face's form")
                )
        raise_all(problems)
        return NativeLayout(parts=parts, shapes=shapes)

    def finish(self, folder: Path) -> None:
        """Nothing: torch's own metadata is all that torchtitan reads."""

    @torch.no_grad()
    def logits(self, folder: Path, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
        """Return the logits; routed experts are computed in float32, which torchtitan does in bfloat16."""
        length = tokens.shape[1]
        spec = self._spec(vocab_size, length)
        apply_overrides(OverrideConfig(imports=[_CPU_ATTENTION]), spec.model)
        model = spec.model.build()
        model.init_weights()  # rotary positions, which no checkpoint holds
        weights = model.state_dict()
        load(weights, checkpoint_id=folder)
        model.load_state_dict(weights)
        positions = torch.arange(length).expand_as(tokens)
        mask = create_block_mask_on_cpu(lambda b, h, q, k: q >= k, tokens.shape[0], None, length, length)
        GroupedExperts.forward = _in_float32
        found: torch.Tensor = model.float().eval()(tokens, positions=positions, attention_masks=mask)
        return found.float()

    def _spec(self, vocab_size: int, length: int) -> Any:
        batch = self.job.training.global_batch_size
        return model_spec(self.job.model, vocab_size=vocab_size, seq_length=length, global_batch_size=batch)


def _in_float32(self: GroupedExperts, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Compute each expert's tokens, which come expert by expert."""
    parts = torch.split(tokens, counts.tolist())
    matrices = zip(parts, self.w1_EFD, self.w2_EDF, self.w3_EFD, strict=True)
    return torch.cat(
        [(torch.nn.functional.silu(part @ gate.T) * (part @ up.T)) @ down.T for part, gate, down, up in matrices]
    )
