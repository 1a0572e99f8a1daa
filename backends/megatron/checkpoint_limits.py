"""Why a checkpoint cannot be loaded into this model and this layout: said before anything is changed.

All ranks find the same problems, so all of them stop together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_hydra.backends.megatron.optimizer_state import DP_RESHARDABLE, OptimizerFacts
from primus_hydra.errors import Problem

Shape = tuple[int, ...]
LAYOUT_WORDS: Mapping[str, str] = {
    "tensor_model_parallel_size": "parallel.tp",
    "pipeline_model_parallel_size": "parallel.pp",
    "virtual_pipeline_model_parallel_size": "parallel.vpp",
    "context_parallel_size": "parallel.cp",
    "expert_model_parallel_size": "parallel.ep",
    "expert_tensor_parallel_size": "parallel.etp",
}
"""What of a layout splits the model, and the key that sets it."""
_TP, _ETP = "tensor_model_parallel_size", "expert_tensor_parallel_size"
_FREE = ("context_parallel_size",)
"""What counts as data parallelism to the optimizer."""
_SHOWN = 3
_OPTIMIZER = re.compile(r"(chained_\d+\.)?optimizer\.")


def model_problems(saved: Mapping[str, Shape], wanted: Mapping[str, Shape], folder: Path, key: str) -> list[Problem]:
    """Return one problem that tells how the checkpoint's weights differ from the model's, or none.

    `saved` and `wanted` map names of tensors to their whole shapes.
    """
    weights = {name: shape for name, shape in saved.items() if not _OPTIMIZER.match(name)}
    found = [
        *(
            f"{name} is {_text(weights[name])} there and {_text(wanted[name])} here"
            for name in _unequal(weights, wanted)
        ),
        *(f"{name} is not there" for name in sorted(wanted.keys() - weights.keys())),
        *(f"{name} is only there" for name in sorted(weights.keys() - wanted.keys())),
    ]
    if not found:
        return []
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return [
        Problem(
            key=key,
            what=f"the checkpoint holds another model: {', '.join(found[:_SHOWN])}{more}",
            where=str(folder),
            hint="choose the model that was saved, or another checkpoint",
        )
    ]


def optimizer_problems(
    saved: OptimizerFacts, mine: OptimizerFacts, layouts: tuple[Mapping[str, Any], Mapping[str, Any]], folder: Path
) -> list[Problem]:
    """Return why the saved optimizer cannot be continued; `layouts` are the checkpoint's and ours."""
    if saved.format != DP_RESHARDABLE:
        return []
    changed = _changed_sizes(*layouts)
    if mine.format is None:
        changed.append("the optimizer is sharded there and whole here")
    if not changed:
        return []
    return [
        Problem(
            key="resume",
            what=f"the optimizer was saved as {DP_RESHARDABLE}, which only another number of data-parallel ranks can "
            f"read, but {', '.join(changed)}",
            where=str(folder),
            hint=f"keep that layout, or start a new run from the weights alone: init_from={folder} run.name=NAME",
        )
    ]


def _changed_sizes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    changed = [name for name in LAYOUT_WORDS if there.get(name) != here.get(name) and name not in _FREE]
    if _TP in changed and _ETP in changed:
        changed.remove(_ETP)  # it follows the other
    return [f"{LAYOUT_WORDS[name]} is {there.get(name)} there and {here.get(name)} here" for name in changed]


def _unequal(saved: Mapping[str, Shape], wanted: Mapping[str, Shape]) -> list[str]:
    return sorted(name for name in saved.keys() & wanted.keys() if saved[name] != wanted[name])


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
