"""What the core trainer is built from: Megatron's own dataclasses, and ours for what Megatron takes as plain arguments.

`backend.config.SECTION.KEY` sets a field of the section's class. Every object is built once, from the neutral values
with the user's laid over them: Megatron fills fields from each other when it builds, so a second building would keep
what follows from values that are no longer there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.transformer_config import TransformerConfig

LayerImplementation = Literal["local", "transformer_engine"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One model chunk of one pipeline rank: whether it holds the embedding, the output, and which virtual chunk it is.

    `vp_stage` is None without virtual pipeline stages.
    """

    pre_process: bool
    post_process: bool
    vp_stage: int | None = None


@dataclass(kw_only=True)
class GptModel:
    """Arguments of Megatron's GPTModel beside its TransformerConfig.

    Another class that derives from this one, named by `backend.config.model._target_`, may build another model.
    """

    vocab_size: int
    max_sequence_length: int
    layer_implementation: LayerImplementation = "local"
    position_embedding_type: Literal["rope", "yarn", "none"] = "rope"
    rotary_base: float = 10000
    rotary_percent: float = 1.0
    rope_scaling: bool = False
    rope_scaling_factor: float = 8.0
    seq_len_interpolation_factor: float | None = None
    share_embeddings_and_output_weights: bool = False
    fp16_lm_cross_entropy: bool = False

    def build(self, transformer: TransformerConfig, layer_spec: Any, stage: Stage) -> Any:
        """Return one chunk of the model; `layer_spec` is what `layer_spec.spec_for` returns."""
        virtual = {} if stage.vp_stage is None else {"vp_stage": stage.vp_stage}
        return GPTModel(
            transformer,
            layer_spec,
            vocab_size=self.vocab_size,
            max_sequence_length=self.max_sequence_length,
            pre_process=stage.pre_process,
            post_process=stage.post_process,
            fp16_lm_cross_entropy=self.fp16_lm_cross_entropy,
            parallel_output=True,
            share_embeddings_and_output_weights=self.share_embeddings_and_output_weights,
            position_embedding_type=self.position_embedding_type,
            rotary_percent=self.rotary_percent,
            rotary_base=self.rotary_base,
            rope_scaling=self.rope_scaling,
            rope_scaling_factor=self.rope_scaling_factor,
            seq_len_interpolation_factor=self.seq_len_interpolation_factor,
            **virtual,
        )


@dataclass(kw_only=True)
class Schedule:
    """Arguments of the learning rate and weight decay schedules, in optimizer steps."""

    warmup_steps: int
    decay: Literal["cosine", "linear", "sqrt", "constant"]
    decay_steps: int | None
    min_lr_ratio: float
    steps: int
    start_weight_decay: float
    end_weight_decay: float
    weight_decay_incr_style: Literal["constant", "linear", "cosine"] = "constant"


@dataclass(kw_only=True)
class Batch:
    """How a step's samples are cut. `rampup` is [first global batch size, increment, samples over which it grows]."""

    rampup: list[int] | None = None


@dataclass(kw_only=True)
class ParallelState:
    """Arguments of `initialize_model_parallel` that no neutral key stands for."""

    order: str = "tp-cp-ep-dp-pp"
    distributed_timeout_minutes: int = 10
    nccl_communicator_config_path: str | None = None
    use_sharp: bool = False


@dataclass(kw_only=True)
class Checkpoint:
    """How checkpoints are laid out on disk; `create_seed` saves the first weights as step 0 and ends."""

    optimizer_format: Literal["dp_reshardable", "fully_reshardable"] = "fully_reshardable"
    fully_parallel_save: bool = False
    fully_parallel_load: bool = False
    create_seed: bool = False


@dataclass(kw_only=True)
class Loop:
    """What happens around the steps."""

    garbage_collect_every: int | None = 100
    profile_ranks: str = "0"


@dataclass(kw_only=True)
class CoreConfig:
    """Everything native to the core trainer; `dataset` is None unless `data=megatron`.

    `stop_agreed` is asked once after every step but the last, on every rank.
    """

    transformer: TransformerConfig
    optimizer: OptimizerConfig
    ddp: DistributedDataParallelConfig
    model: GptModel
    schedule: Schedule
    batch: Batch
    parallel: ParallelState
    checkpoint: Checkpoint
    loop: Loop
    dataset: GPTDatasetConfig | None
    stop_agreed: Callable[[int], bool]


class ModelAndData(Protocol):
    """What says which model is trained on which data, whoever runs the loop; a CoreConfig does."""

    @property
    def transformer(self) -> TransformerConfig:
        """Megatron's configuration of the layers."""

    @property
    def model(self) -> GptModel:
        """What is around the layers."""

    @property
    def dataset(self) -> GPTDatasetConfig | None:
        """Megatron's data set, None for ours."""
