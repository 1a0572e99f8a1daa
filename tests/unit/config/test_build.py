"""The validator: types, choices, bounds and unknown keys, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.config.build import build_job, defaults_of, dump_job, load_job, schema_keys
from primus_hydra.config.schema import JobConfig, info_of
from tests.support import job_tree, make_job


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("training.steps", "7", "expects a whole number"),
        ("training.steps", True, "expects a whole number"),
        ("training.steps", None, "expects a whole number, not null"),
        ("optimizer.lr", float("inf"), "finite"),
        ("optimizer.lr", float("nan"), "finite"),
        ("model.hidden_size", None, "needs a value"),
        ("run.name", 12, "expects text"),
        ("parallel.dp_shard", "some", "expects a whole number or auto"),
        ("compile.components", "model", "expects a list"),
        ("platform.env", {"A": 1}, "A: expects text"),
        ("optimizer", 3, "expects a group of keys"),
        ("optimizer.name", "sgd", "expects one of adamw, adam"),
    ],
)
def test_a_value_that_does_not_fit_is_named(key: str, value: object, what: str) -> None:
    job, problems = build_job(job_tree({key: value}))

    assert job is None
    assert [problem.key for problem in problems] == [key]
    assert what in problems[0].what


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    _, problems = build_job(job_tree({"training.step": 3}))

    assert problems[0].hint == "did you mean training.steps or steps?" or "steps" in (problems[0].hint or "")


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False, min_value=1e-300), st.integers(min_value=0))
def test_a_saved_job_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, text: str, lr: float, seed: int
) -> None:
    job = make_job({"run.group": text, "optimizer.lr": lr, "training.seed": seed, "env": {"A": text}})
    file: Path = tmp_path_factory.mktemp("job") / "config.yaml"
    file.write_text(dump_job(job), encoding="utf-8")

    assert load_job(file) == job


def test_every_key_of_the_schema_has_a_doc_of_one_line() -> None:
    bad = [key for key, (_, info) in schema_keys(JobConfig).items() if not info.doc.endswith(".") or "\n" in info.doc]

    assert bad == []


def test_the_schemas_defaults_are_valid_but_for_what_a_group_must_choose() -> None:
    _, problems = build_job(defaults_of(JobConfig))

    assert {problem.key for problem in problems} == {
        "model.name",
        "model.hidden_size",
        "model.intermediate_size",
        "model.num_hidden_layers",
        "model.num_attention_heads",
        "model.max_position_embeddings",
        "platform.name",
        "backend._target_",
        "backend.name",
    }
    assert info_of  # the schema's own accessor stays public
