"""What stands against loading a checkpoint, from its names and shapes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_hydra.backends.megatron.checkpoint_limits import LAYOUT_WORDS, model_problems, optimizer_problems
from primus_hydra.backends.megatron.optimizer_state import DP_RESHARDABLE, FULLY_RESHARDABLE, OptimizerFacts

FOLDER = Path("checkpoints/step-7")
WEIGHTS = {"embedding.word_embeddings.weight": (512, 64), "decoder.layers.mlp.linear_fc2.weight": (2, 64, 128)}
PLAIN = OptimizerFacts(format=None, started=True)
BUCKETS = OptimizerFacts(format=DP_RESHARDABLE, started=True)
WHOLE = OptimizerFacts(format=FULLY_RESHARDABLE, started=True)
LAYOUT: dict[str, Any] = dict.fromkeys(LAYOUT_WORDS, 1)


@pytest.mark.parametrize(
    "name", ["optimizer.state.exp_avg.embedding.word_embeddings.weight", "chained_0.optimizer.distributed.bucket_idx_0"]
)
def test_the_optimizers_tensors_are_no_weights(name: str) -> None:
    assert model_problems({**WEIGHTS, name: (3,)}, WEIGHTS, FOLDER, "resume") == []


def test_a_few_differences_are_shown_and_the_rest_counted() -> None:
    saved = {f"decoder.layers.{number}.weight": (4,) for number in range(5)}
    (problem,) = model_problems(saved, {}, FOLDER, "init_from")
    assert problem.key == "init_from"
    assert problem.what.count("is only there") == 3
    assert problem.what.endswith("(and 2 more)")


@pytest.mark.parametrize(("saved", "mine"), [(PLAIN, PLAIN), (PLAIN, WHOLE), (WHOLE, PLAIN), (WHOLE, BUCKETS)])
def test_whole_tensors_fit_every_layout_and_every_optimizer(saved: OptimizerFacts, mine: OptimizerFacts) -> None:
    other = {**LAYOUT, "tensor_model_parallel_size": 2, "expert_model_parallel_size": 2}
    assert optimizer_problems(saved, mine, (LAYOUT, other), FOLDER) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tensor_model_parallel_size": 2, "expert_tensor_parallel_size": 2}, "but parallel.tp is 1 there and 2 here"),
        ({"pipeline_model_parallel_size": 2}, "but parallel.pp is 1 there and 2 here"),
        ({"expert_model_parallel_size": 2}, "but parallel.ep is 1 there and 2 here"),
    ],
)
def test_buckets_fit_one_split_of_the_model(changed: dict[str, int], words: str) -> None:
    (problem,) = optimizer_problems(BUCKETS, BUCKETS, (LAYOUT, LAYOUT | changed), FOLDER)
    assert problem.what.endswith(words)
    assert problem.hint is not None
    assert f"init_from={FOLDER}" in problem.hint


def test_buckets_fit_any_number_of_data_parallel_ranks() -> None:
    layout = {**LAYOUT, "world_size": 8, "context_parallel_size": 2}
    assert optimizer_problems(BUCKETS, WHOLE, (LAYOUT, layout), FOLDER) == []
    (problem,) = optimizer_problems(BUCKETS, PLAIN, (LAYOUT, LAYOUT), FOLDER)
    assert problem.what.endswith("the optimizer is sharded there and whole here")
