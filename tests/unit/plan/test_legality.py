"""Every broken rule is said at once, each with the nearest values that would keep it."""

from __future__ import annotations

import dataclasses

import pytest

from primus_hydra.config.nearest import even_split, in_words, near_divisors, near_multiples, weighted_split
from primus_hydra.plan.legality import legal, legality_problems, rules_of, split_words
from primus_hydra.plan.setting import chunks_of
from tests.unit.plan.settings import job_of, setting

BASE = setting("model=llama3_70b", "platform=h100", "launch.nodes=8", "training.global_batch_size=128", "parallel.tp=4")
MIXTURE = setting("model=deepseek_v2_lite", "platform=h100", "training.global_batch_size=64")


def hints(**changes: object) -> dict[str, str]:
    """Return the nearest legal values by key, of a setting with changes."""
    base = MIXTURE if changes.pop("mixture", False) else BASE
    broken = legality_problems(dataclasses.replace(base, **changes))  # type: ignore[arg-type]
    return {str(problem.key): problem.hint or "" for problem in broken}


def test_a_legal_setting_keeps_every_rule_and_says_why() -> None:
    assert legal(BASE)
    assert all(rule.reason for rule in rules_of(BASE))
    assert len(rules_of(BASE)) >= 7


@pytest.mark.parametrize(
    ("changes", "key", "nearest"),
    [
        ({"tp": 6}, "parallel.tp", "parallel.tp can be 2, 4 or 8"),
        ({"seq": 8190}, "training.seq_length", "training.seq_length can be 8188 or 8192"),
        ({"cp": 4, "seq": 8192 + 32}, "training.seq_length", "training.seq_length can be 8192 or 8704"),
        ({"ep": 2}, "parallel.ep", "parallel.ep=1 parallel.etp=1"),
        ({"mixture": True, "ep": 3}, "parallel.ep", "parallel.ep can be 1, 2 or 4"),
        ({"vpp": 2}, "parallel.vpp", "parallel.vpp=1"),
        ({"fp8": True, "seq": 8200}, "precision.fp8", "a smaller parallel.tp, other sizes, or precision.fp8=null"),
    ],
)
def test_a_broken_rule_names_the_nearest_legal_values(changes: dict[str, object], key: str, nearest: str) -> None:
    assert nearest in hints(**changes)[key]


def test_all_violations_come_at_once() -> None:
    assert set(hints(tp=6, seq=8191, ep=2)) == {"parallel.tp", "training.seq_length", "parallel.ep"}


def test_interleaved_microbatches_go_round_the_ranks() -> None:
    odd = dataclasses.replace(
        BASE, backend="megatron", pp=4, vpp=2, chunks=(10,) * 8, schedule="Interleaved1F1B", microbatches=6
    )

    assert [problem.hint for problem in legality_problems(odd)] == ["microbatches can be 4 or 8"]


def test_layers_that_do_not_divide_are_listed_stage_by_stage() -> None:
    words = (
        "model=llama3_70b",
        "model.num_hidden_layers=61",
        "model.parameters=null",
        "platform=h100",
        "parallel.pp=4",
    )
    assert chunks_of(job_of(*words)) == [15, 16, 16, 14], "torchtitan counts embedding and output as a layer each"
    assert chunks_of(job_of(*words, "backend=megatron")) == [16, 15, 15, 15]

    uneven = dataclasses.replace(BASE, backend="megatron", pp=4, chunks=(16, 15, 15, 15),
                                 model=dataclasses.replace(BASE.model, num_hidden_layers=61))  # fmt: skip
    assert split_words(uneven) == "16, 15, 15, 15"
    (problem,) = legality_problems(uneven)
    assert "16, 15, 15, 15 with backend.config.transformer.num_layers_in_first_pipeline_stage=16" in (
        problem.hint or ""
    )


def test_a_named_stage_makes_an_uneven_split_legal() -> None:
    key = "backend.config.transformer.num_layers_in_first_pipeline_stage"
    job = job_of("model=llama3_70b", "model.num_hidden_layers=61", "model.parameters=null", "platform=h100",
                 "backend=megatron", "parallel.pp=4", f"{key}=13")  # fmt: skip

    assert chunks_of(job) == [13, 16, 16, 16]


def test_nearest_values() -> None:
    assert near_divisors([64, 8], 5) == [2, 4, 8]
    assert near_divisors([7], 4) == [1, 7]
    assert near_multiples(12, 40) == [36, 48]
    assert near_multiples(12, 5) == [12]
    assert in_words([1, 2, 4]) == "1, 2 or 4"
    assert even_split(61, 4) == [16, 15, 15, 15]
    assert sum(weighted_split(61, 4)) == 61
