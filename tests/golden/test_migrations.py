"""What becomes of recipes of other launchers, word for word: the experiment, the report, and what the plan says.

PRIMUS_UPDATE_GOLDEN=1 writes the files anew: read them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import primus_hydra
from primus_hydra.app import run_command
from primus_hydra.errors import ExitCode
from primus_hydra.migrate.ledger import FATES, REPORTED
from primus_hydra.migrate.report import Report
from primus_hydra.tasks.migrate_recipe import print_report

RECIPES = Path(__file__).parent / "recipes"
GOLDEN = Path(__file__).parent / "migrations"
CONF = (Path(primus_hydra.__file__).parent / "conf").absolute()
UPDATE = bool(os.environ.get("PRIMUS_UPDATE_GOLDEN"))
PRESETS = "task.presets=presets"
CASES: dict[str, tuple[str, ...]] = {
    "llama3_1_8b": ("task.path=MI300X/llama3.1_8B-pretrain.yaml", PRESETS),
    "substitution": ("task.path=substitution.yaml", PRESETS, "platform=mi300x"),
    "extends": ("task.path=extends.yaml", PRESETS, "platform=h100"),
    "deepseek_v2_lite": ("task.path=MI355X/deepseek_v2_lite.yaml", PRESETS),
    "deepseek_v3_proxy": ("task.path=MI300X/deepseek_v3_proxy.yaml", PRESETS, "task.format=markdown"),
    "qwen3_8b": ("task.path=MI300X/qwen3_8B.yaml", PRESETS),
    "qwen3_8b_upstream": ("task.path=MI300X/qwen3_8B.yaml", PRESETS, "task.backend=megatron_training"),
    "flat": ("task.path=flat.yaml", PRESETS, "platform=mi300x"),
    "house_model": ("task.path=house.yaml", PRESETS, "platform=mi300x"),
    "fp8_and_fsdp": ("task.path=MI300X/fp8.yaml", PRESETS),
    "without_presets": ("task.path=MI300X/bare.yaml",),
    "data_and_checkpoints": ("task.path=MI300X/data.yaml", PRESETS),
    "wsd_in_samples": ("task.path=MI300X/wsd.yaml", PRESETS),
    "odd_yaml": ("task.path=MI300X/odd_yaml.yaml", PRESETS),
    "command_line": (
        "task.path=MI300X/bare.yaml",
        PRESETS,
        "task.arguments=--train_iters 9 --lr 1e-4 --deep.er 1 --overlap_grad_reduce --clip_grad 0.5 --seed None",
    ),
    "with_runner": ("task.path=MI300X/bare.yaml", PRESETS, "task.runner=runner.yaml"),
    "runner": ("task.path=runner.yaml", "platform=mi300x"),
    "titan_in_primus": ("task.path=MI355X/titan.yaml", PRESETS),
    "titan_toml": ("task.path=titan.toml", "platform=h100"),
    "titan_function": ("task.path=titan_registry.py", "task.function=llama3_8b", "platform=h100"),
    "megatron_arguments": ("task.path=arguments.txt", "platform=h100"),
    "megatron_script": ("task.path=script.sh", "platform=h100"),
    "megatron_text": (
        "task.arguments=--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --lr 1e-3",
        "platform=cpu",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "recipes"
    shutil.copytree(RECIPES, copy)
    monkeypatch.chdir(copy)
    for name in re.findall(r"\$\{(\w+)", "".join(file.read_text() for file in RECIPES.rglob("*.yaml"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PRIMUS_CONF", raising=False)
    return copy


def migrated(*words: str) -> tuple[int, str, str]:
    """Run the task; return its exit code, and what it prints and says."""
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        code = run_command(["task=migrate", *words])
    return code, printed.getvalue(), said.getvalue()


def same_everywhere(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "/home/you").replace(str(CONF), "/opt/primus_hydra/conf")
    return re.sub(r"\.yaml:\d+$", ".yaml:1", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_becomes_what_the_golden_file_says(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Report] = []
    monkeypatch.setattr(
        "primus_hydra.tasks.migrate_recipe.print_report",
        lambda report, form: (reports.append(report), print_report(report, form)),
    )
    before = sorted(folder.rglob("*"))
    code, printed, said = migrated(*CASES[name])
    text = same_everywhere(f"$ task=migrate {' '.join(CASES[name])}\nexit {code}\n{printed}\n{said}", folder)
    golden = GOLDEN / f"{name}.txt"
    if UPDATE:
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")

    assert golden.read_text(encoding="utf-8") == text
    assert sorted(folder.rglob("*")) == before, "something was written"
    assert code == int(ExitCode.USER if reports[0].refused else ExitCode.DONE)
    hold_account(reports[0])


def hold_account(report: Report) -> None:
    """Every key has one entry, which says where it went or why not, and the totals count them."""
    names = [entry.name for entry in report.entries]
    assert len(set(names)) == len(names) == report.totals["keys"] > 0
    assert sum(report.totals[fate] for fate in FATES) == len(names)
    for entry in report.entries:
        assert entry.fate == "default" or entry.targets or entry.reason, entry
        assert entry.fate not in REPORTED or entry.reason, entry


def test_there_are_twenty_recipes_and_a_golden_file_for_each_case() -> None:
    assert len({word for words in CASES.values() for word in words if word.startswith(("task.path", "task.arg"))}) >= 20
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(CASES)


def test_the_written_file_is_an_experiment_that_plans(folder: Path) -> None:
    code, printed, _ = migrated(*CASES["llama3_1_8b"], "task.output=new/mine.yaml")
    planned = io.StringIO()
    with contextlib.redirect_stdout(planned):
        again = run_command(["experiment=new/mine.yaml", "task=plan", "task.format=json"])
    values = {line["key"]: line["value"] for line in json.loads(planned.getvalue())["values"]}

    assert (code, again) == (0, 0)
    assert "new/mine.yaml is written" in printed
    assert values["training.steps"] == 50
    assert values["model.name"] == "llama3_1_8b"


def test_a_file_is_written_over_only_when_asked(folder: Path) -> None:
    file = folder / "mine.yaml"
    file.write_text("# precious\n")
    refused, _, said = migrated(*CASES["without_presets"], "task.output=mine.yaml")
    kept = file.read_text()
    code, _, _ = migrated(*CASES["without_presets"], "task.output=mine.yaml", "task.overwrite=true")

    assert (refused, kept, code) == (2, "# precious\n", 0)
    assert "task.overwrite=true" in said
    assert "num_hidden_layers: 4" in file.read_text()


def test_a_variable_of_the_recipe_is_a_variable_of_the_experiment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrated(*CASES["llama3_1_8b"], "task.output=mine.yaml")
    monkeypatch.setenv("PRIMUS_TRAIN_ITERS", "77")
    planned = io.StringIO()
    with contextlib.redirect_stdout(planned):
        run_command(["experiment=mine.yaml", "--cfg", "job", "--package", "training"])

    assert "steps: 77" in planned.getvalue()
