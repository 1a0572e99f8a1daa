"""What upstream asks for while it sets a training up: the model, and the data of each split.

Every rank opens the data itself (`is_distributed`): left to the first tensor parallel ranks, the others would wait for
them in a collective that upstream's own data sets join.
"""

from __future__ import annotations

from typing import Any

from megatron.training.argument_utils import core_transformer_config_from_args

from primus_hydra.backends.megatron.dataset import PositionDataset, open_dataset
from primus_hydra.backends.megatron.layer_spec import spec_for
from primus_hydra.backends.megatron.sections import Stage
from primus_hydra.backends.megatron.training.native import UpstreamConfig
from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import RankContext


class ModelProvider:
    """Builds one chunk of the model as `backend=megatron` does, with the transformer that the arguments describe."""

    def __init__(self, native: UpstreamConfig) -> None:
        self._native = native

    def __call__(
        self, pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None, **_: Any
    ) -> Any:
        """Return the chunk, on the CPU and without wrappers."""
        native = self._native
        transformer = core_transformer_config_from_args(native.args, native.transformer_class)
        stage = Stage(pre_process=pre_process, post_process=post_process, vp_stage=vp_stage)
        return native.model.build(transformer, spec_for(transformer, native.model, vp_stage), stage)


class DataProvider:
    """Opens the training samples; upstream has no validation data, as the validation is ours."""

    is_distributed = True

    def __init__(self, native: UpstreamConfig, job: JobConfig, context: RankContext) -> None:
        self._native = native
        self._job = job
        self._context = context

    def __call__(self, sizes: tuple[int, int, int], vp_stage: int | None = None) -> tuple[PositionDataset, None, None]:
        """Return training, validation and test data; `sizes` are the samples that upstream will ask for."""
        local = self._native.model.layer_implementation == "local"
        training = open_dataset(
            self._job, self._context, "train", samples=sizes[0], masks=local, config=self._native.dataset
        )
        return training, None, None
