"""How the model and the batch are split over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """Degrees of parallelism; their product is the number of ranks."""

    tp: int = key(1, "Tensor parallel ranks.", gt=0)
    pp: int = key(1, "Pipeline stages' ranks.", gt=0)
    vpp: int = key(1, "Model chunks per pipeline rank (interleaved schedules).", gt=0)
    cp: int = key(1, "Context parallel ranks (split of the sequence).", gt=0)
    ep: int = key(1, "Expert parallel ranks (split of the experts).", gt=0)
    etp: int = key(1, "Tensor parallel ranks inside an expert.", gt=0)
    dp_shard: int | Literal["auto"] = key(
        "auto", "Data-parallel ranks that shard the state; auto fills the machine.", gt=0
    )
    dp_replicate: int = key(1, "Data-parallel ranks that copy the state.", gt=0)
    sequence_parallel: bool = key(True, "Split norms and dropout over the tensor parallel ranks.")
    sharding: Literal["auto", "none", "optimizer", "full"] = key(
        "auto", "What data-parallel ranks shard: ZeRO-0, 1 or 3; auto is the most that the backend can."
    )
    reshard_after_forward: Literal["default", "always", "never"] = key(
        "default", "Free full parameters after the forward."
    )
    pipeline_schedule: str = key("1F1B", "Pipeline schedule, by its torch.distributed.pipelining name.")
