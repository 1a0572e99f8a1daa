"""Text for text keys arrives unchanged, whichever way it comes; numbers and booleans take the spellings they have."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from primus_hydra.config.build import build_job, dump_job, load_job
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.files import read_config_file
from primus_hydra.config.grammar import of_text, parse
from primus_hydra.config.quoting import quote
from primus_hydra.config.resolve import resolve
from primus_hydra.config.resolvers import register_resolvers
from primus_hydra.config.sources import FileBook
from primus_hydra.config.sweep import expand_sweep
from tests.support import job_tree, make_job
from tests.unit.config.conftest import Compose, Write

SCALARS = (
    "00123",
    "12e4567",
    "1_000",
    "true",
    "False",
    "2024-10-01",
    "0x1F",
    ".5",
    "1:30",
    "on",
    "NO",
    "1e-5",
    "5.",
    "-0",
)
"""Plain YAML scalars that PyYAML reads as something else than text."""
FLOATS = {
    "1e-5": 1e-5,
    "1E5": 1e5,
    "5e-6": 5e-6,
    ".5": 0.5,
    "1_000.0": 1000.0,
    "1.": 1.0,
    "+2.5": 2.5,
    "7": 7.0,
    "1e+2": 100.0,
}
plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)


def test_plain_scalars_of_a_file_stay_text_for_text_keys_and_null_stays_null(write: Write, composed: Compose) -> None:
    lines = "".join(f"  A{number}: {scalar}\n" for number, scalar in enumerate(SCALARS))
    write("experiment/x.yaml", f"# @package _global_\nenv:\n{lines}  on: off\nrun:\n  group: null\n  user: ~\n"
          "platform:\n  env:\n    P: 0123\npatches:\n  disabled: [00123, 12e4567]\n")  # fmt: skip

    job = composed("experiment=x").job

    assert [job.env[f"A{number}"] for number in range(len(SCALARS))] == list(SCALARS)
    assert (job.env["on"], job.run.group, job.run.user) == ("off", None, None)
    assert (job.platform.env["P"], job.patches.disabled) == ("0123", ["00123", "12e4567"])


@pytest.mark.parametrize("text", ["???", '"???"', "'00123'", '"true"'])
def test_quoted_scalars_are_text(text: str, tmp_path: Path, composed: Compose) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"run:\n  group: {text if text != '???' else repr(text)}\n")

    assert composed(f"experiment={file}").job.run.group == text.strip("'\"")


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.sampled_from(SCALARS) | plain))
def test_any_text_in_a_file_reads_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]
) -> None:
    file = tmp_path_factory.mktemp("text") / "x.yaml"
    file.write_text(yaml.safe_dump({"env": env}, allow_unicode=True), encoding="utf-8")

    assert read_config_file(file).data("_global_") == {"env": {k: _literal(v) for k, v in env.items()}}


def _literal(text: str) -> str:
    return "${literal_question_marks:}" if text == "???" else text


@given(st.sampled_from(SCALARS) | st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@settings(max_examples=80)
def test_any_environment_variable_arrives_as_it_is(text: str) -> None:
    register_resolvers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIMUS_TEST_TEXT", text)
        config = OmegaConf.create(
            {"run": {"group": "${env:PRIMUS_TEST_TEXT}", "user": "${run.group}", "name": "a-${run.user}"}}
        )
        tree, problems = resolve(config)

    assert problems == []
    assert tree["run"] == {"group": text, "user": text, "name": f"a-{text}"}


@pytest.mark.parametrize("text", [*SCALARS, "x y", "null"])
def test_a_default_of_an_environment_variable_is_text_as_written(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIMUS_TEST_NOWHERE", raising=False)
    register_resolvers()

    tree, _ = resolve(OmegaConf.create({"run": {"group": f"${{env:PRIMUS_TEST_NOWHERE,{text}}}"}}))

    assert tree["run"]["group"] == (None if text == "null" else text)


def test_an_environment_variable_is_cast_for_keys_of_other_types(
    composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"A": "false", "B": "7", "C": "1e-5", "D": "True"}.items():
        monkeypatch.setenv(f"PRIMUS_TEST_{name}", value)

    job = composed("compile.enable=${env:PRIMUS_TEST_A}", "training.steps=${env:PRIMUS_TEST_B}",
                   "optimizer.lr=${env:PRIMUS_TEST_C}", "checkpoint.export_hf=${env:PRIMUS_TEST_D}",
                   "run.group=${training.steps}", "run.user=${compile.enable}").job  # fmt: skip

    assert (job.compile.enable, job.training.steps, job.optimizer.lr, job.checkpoint.export_hf) == (
        False,
        7,
        1e-5,
        True,
    )
    assert (job.run.group, job.run.user) == ("7", "false")


@pytest.mark.parametrize("spelling", FLOATS)
def test_floats_take_every_spelling_in_a_file(spelling: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"optimizer:\n  lr: {spelling}\n")

    job, problems = build_job(job_tree({"optimizer.lr": read_config_file(file).data("_global_")["optimizer"]["lr"]}))

    assert job is not None, problems
    assert job.optimizer.lr == FLOATS[spelling]


def test_floats_take_every_spelling_on_the_command_line(composed: Compose) -> None:
    keys = ("optimizer.eps", "optimizer.lr", "optimizer.weight_decay", "training.max_grad_norm", "tokenizer.train_mib",
            "model.rope_theta", "model.rms_norm_eps", "launch.stop_grace_s", "model.initializer_range")  # fmt: skip

    tree = composed(*(f"{key}={text}" for key, text in zip(keys, FLOATS, strict=True))).tree

    found = [tree[key.split(".")[0]][key.split(".")[1]] for key in keys]
    assert [float(value) for value in found] == list(FLOATS.values())


@given(st.text(st.characters(codec="utf-8")))
def test_a_text_read_without_hydras_parser_is_what_hydra_reads(text: str) -> None:
    spelled = f"++env.A={quote(text)}"
    ours = of_text(spelled)

    assert ours is None or ours == parse(spelled)
    assert (ours or parse(spelled)).value() == text


@given(st.integers() | st.booleans() | st.decimals(allow_nan=False, allow_infinity=False))
def test_a_scalar_read_without_hydras_parser_is_what_hydra_reads(value: object) -> None:
    spelled = f"training.steps={str(value).lower()}"
    ours = of_text(spelled)

    assert ours is None or (ours == parse(spelled) and type(ours.value()) is type(parse(spelled).value()))


def test_sweep_points_take_text_as_typed() -> None:
    swept = expand_sweep(["run.group=12e4567,00123, null", "run.user=choice('1e5','a, b')", "optimizer.lr=1e-3"])

    assert [point.swept for point in swept][:2] == [
        ("run.group='12e4567'", "run.user='1e5'"),
        ("run.group='12e4567'", "run.user='a, b'"),
    ]
    groups = list(dict.fromkeys(point.overrides[0] for point in swept))
    assert groups == ["run.group='12e4567'", "run.group='00123'", "run.group=null"]
    assert len(swept) == 6


@given(st.text(st.characters(codec="utf-8")), st.sampled_from(SCALARS))
def test_a_saved_job_keeps_every_text(tmp_path_factory: pytest.TempPathFactory, text: str, scalar: str) -> None:
    file = tmp_path_factory.mktemp("job") / "config.yaml"
    job = make_job(
        {"env": {"A": text, "B": scalar, scalar: "x"}, "patches.disabled": [text, scalar], "run.group": text}
    )
    file.write_text(dump_job(job), encoding="utf-8", newline="")

    assert load_job(file) == job


def test_text_lists_quotes_and_question_marks_on_the_command_line(composed: Compose) -> None:
    job = composed("patches.disabled=[12e4567, 00123]", "run.group='a' and 'b'", "run.user=???", "env.A=x#${run.user}",
                   "data.path=${env:PRIMUS_TEST_NOWHERE,null}").job  # fmt: skip

    assert job.patches.disabled == ["12e4567", "00123"]
    assert (job.run.group, job.run.user, job.env["A"], job.data.path) == ("'a' and 'b'", "???", "x#???", None)


def test_a_byte_order_mark_and_a_late_header_are_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "experiment" / "x.yaml"
    file.parent.mkdir(parents=True)
    file.write_bytes("\ufeff# Mine.\n# @package _global_\nrun:\n  group: é\n".encode())

    composed = compose(Request(overrides=["platform=cpu", "experiment=x"], config_dirs=[tmp_path / "conf"]))

    assert composed.job.run.group == "é"


def test_a_file_placed_elsewhere_is_read_by_the_types_of_its_place(write: Write, composed: Compose) -> None:
    write("data/labels.yaml", "group: 00123\n")
    write("experiment/x.yaml", "# @package _global_\ndefaults:\n  - /data/labels@run\n  - _self_\n")

    assert composed("experiment=x").job.run.group == "00123"


def test_every_copy_of_a_repository_shares_one_book_of_files(tmp_path: Path) -> None:
    import copy

    book = FileBook()
    copied = copy.deepcopy(book)
    (tmp_path / "x.yaml").write_text("a: 1\na: 2\n")
    copied.read(tmp_path / "x.yaml")

    assert book.problems
