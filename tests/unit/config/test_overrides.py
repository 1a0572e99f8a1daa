"""Overrides: text as typed, and every mistake of a command line at once."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.config.quoting import quote
from primus_hydra.errors import UserError
from tests.unit.config.conftest import Compose

TEXTS = (
    "12e4567",
    "00123",
    "2024.10",
    "epoch=3-step=10.ckpt",
    "mlx5_0:1,mlx5_3:1",
    "a#b",
    "日本語",
    "Et*1|t*2",
    "true",
    "null",
    "1e-5",
    "it's",
    'say "hi"',
    "back\\slash\\",
    " spaces ",
    "[a]",
    "{a: b}",
    "",
)


@given(st.text())
def test_hydra_reads_back_any_text_that_was_quoted(text: str) -> None:
    parsed = OverridesParser.create().parse_override(f"key={quote(text)}")

    assert parsed.value() == text


@pytest.mark.parametrize("text", TEXTS)
def test_text_arrives_as_typed(text: str, composed: Compose) -> None:
    job = composed(f"env.PROBE={text}").job

    assert job.env["PROBE"] == text


def test_quotes_and_null_keep_hydras_meaning(composed: Compose) -> None:
    job = composed("run.name='a b'", "run.group=null", "patches.disabled=[a,b]").job

    assert (job.run.name, job.run.group, job.patches.disabled) == ("a b", None, ["a", "b"])


@pytest.mark.parametrize("text", ["1e-5", "0.00001", "1E-5", "1e-05", ".00001"])
def test_floats_take_every_spelling(text: str, composed: Compose) -> None:
    assert composed(f"optimizer.lr={text}").job.optimizer.lr == 1e-5


@pytest.mark.parametrize(
    ("override", "what", "hint"),
    [
        ("optimizer.lrr=1", "optimizer.lrr: there is no such key", "optimizer.lr"),
        ("lr=1", "lr: there is no such key", "optimizer.lr"),
        ("modle=llama3_8b", "modle: there is no such key or group", "model"),
        ("model=lama3_8b", "no option 'lama3_8b'", "model=llama3_8b"),
        ("model=LLAMA3_8B", "no option 'LLAMA3_8B'", "model=llama3_8b"),
        ("Training.steps=3", "Training.steps: there is no such key", "training.steps"),
        ("training.steps", "not of the form key=value", "key=value"),
        ("model", "not of the form key=value", "model="),
        ("optimizer=adam", "takes no value", "optimizer.name"),
        ("training.steps=1e3", "expects a whole number", "write 1000"),
        ("training.steps=abc", "expects a whole number", None),
        ("training.steps=0", "greater than 0", None),
        ("optimizer.lr=fast", "expects a number", None),
        ("compile.enable=maybe", "expects true or false", None),
        ("resume=atuo", "expects one of auto, never, must", "auto"),
        ("parallel.tp=-1", "greater than 0", None),
        ("~training.steps", "cannot be removed", "leave it out"),
        ("+training.stepz=1", "there is no such key", "training.steps"),
        ("optimizer.beta1=1.5", "less than 1", None),
    ],
)
def test_a_wrong_override_is_named_with_its_mending(
    override: str, what: str, hint: str | None, composed: Compose
) -> None:
    with pytest.raises(UserError) as caught:
        composed(override)

    said = str(caught.value)
    assert what in said
    assert "override 2" in said
    assert hint is None or hint in said


def test_all_problems_of_a_call_come_in_one_answer(composed: Compose) -> None:
    with pytest.raises(UserError) as caught:
        composed("optimizer.lrr=1", "model=nope", "training.steps=abc", "resume=atuo", "parallel.tp=0")

    assert len(caught.value.problems) == 5


def test_a_missing_environment_variable_is_named(composed: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIMUS_TEST_NOWHERE", raising=False)

    with pytest.raises(UserError, match="PRIMUS_TEST_NOWHERE is not set"):
        composed("run.group=${env:PRIMUS_TEST_NOWHERE}")


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("2.5", 2.5), ("null", None)])
def test_environment_variables_are_cast_for_typed_keys(
    text: str, value: object, composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_TEST_VALUE", text)
    if value is None:
        assert composed("run.group=${env:PRIMUS_TEST_VALUE}").job.run.group == "null"
    else:
        assert composed("optimizer.lr=${env:PRIMUS_TEST_VALUE}").job.optimizer.lr == value


def test_an_environment_default_is_used_when_the_variable_is_not_set(composed: Compose) -> None:
    assert composed("training.steps=${env:PRIMUS_TEST_NOWHERE,12}").job.training.steps == 12
