"""What `determinism=strict` pins, and who may say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.schema import DeterminismConfig
from primus_hydra.launch.determinism import determinism_variables
from tests.unit.launch.test_environment import variables

STRICT = DeterminismConfig(mode="strict")
EVERYWHERE = {"PYTHONHASHSEED", "TORCHINDUCTOR_DETERMINISTIC"}
GPUS = EVERYWHERE | {"NCCL_ALGO", "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "PYTORCH_TUNABLEOP_ENABLED"}


def test_off_sets_nothing():
    assert determinism_variables(DeterminismConfig(), "nvidia") == []


@pytest.mark.parametrize(
    ("vendor", "names"),
    [
        ("cpu", EVERYWHERE),
        ("nvidia", GPUS | {"CUBLAS_WORKSPACE_CONFIG"}),
        ("amd", GPUS | {"ROCBLAS_DEFAULT_ATOMICS_MODE"}),
    ],
)
def test_strict_pins_the_libraries_of_the_vendor_with_a_reason_each(vendor, names):
    found = determinism_variables(STRICT, vendor)
    assert {variable.name for variable in found} == names
    assert all(len(variable.reason) > len("determinism=strict: ") for variable in found)


def test_strict_wins_over_the_shell_and_env_over_strict():
    asked = determinism_variables(STRICT, "nvidia")
    found = variables({"env": {"PYTHONHASHSEED": "7"}}, asked=asked, inherited={"NCCL_ALGO": "Tree"})
    assert found["NCCL_ALGO"].value == "Ring"
    assert found["PYTHONHASHSEED"].value == "7"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "mode", "deterministic"),
    [
        ([], "off", False),
        (["determinism=strict"], "strict", True),
        (["determinism=strict", "training.deterministic=false"], "strict", False),
        (["determinism=off", "training.deterministic=true"], "off", True),
    ],
)
def test_strict_takes_deterministic_kernels_unless_told_otherwise(overrides, mode, deterministic):
    job = compose(Request(overrides=["platform=cpu", *overrides])).job
    assert (job.determinism.mode, job.training.deterministic) == (mode, deterministic)


def test_an_experiment_may_name_the_group_without_quotes(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("# @package _global_\ndefaults:\n  - override /determinism: off\n")
    assert compose(Request(overrides=["platform=cpu", "experiment=./mine.yaml"])).job.determinism.mode == "off"
