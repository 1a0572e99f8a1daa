"""What a family builder is given beside the model itself, and the building blocks that every family shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from torchtitan.models.common import Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import get_attention_config
from torchtitan.protocols.module import Module

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.config.schema.model import ModelConfig

AttentionBackend = Literal["flex", "flex_flash", "varlen"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A neutral model with what the job adds: `vocab_size` rows, `seq_length` tokens, the attention kernel."""

    model: ModelConfig
    vocab_size: int
    seq_length: int
    attention: AttentionBackend = "flex"
    global_batch_size: int | None = None

    def norm(self, width: int) -> RMSNorm.Config:
        """An RMS norm with the model's epsilon."""
        return RMSNorm.Config(normalized_shape=width, eps=self.model.rms_norm_eps, param_init=init.ONES)

    def embedding(self, param_init: init.ParamInit) -> Embedding.Config:
        """The token embedding; a tied one is drawn with the output projection."""
        return Embedding.Config(
            num_embeddings=self.vocab_size,
            embedding_dim=self.model.hidden_size,
            param_init=init.TIED if self.model.tie_word_embeddings else param_init,
        )

    def lm_head(self, param_init: init.ParamInit) -> Linear.Config:
        """The output projection."""
        return Linear.Config(in_features=self.model.hidden_size, out_features=self.vocab_size, param_init=param_init)

    def inner_attention(self) -> Module.Config:
        """The attention kernel; on a processor the CPU override replaces it later."""
        return cast(Module.Config, get_attention_config(self.attention))
