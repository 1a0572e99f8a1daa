"""Who wins for a variable of a rank, and what nobody may set."""

from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.hooks.values import HookValues, HookVariable
from primus_hydra.launch.environment import (
    EnvVariable,
    environment_problems,
    hook_variables,
    own_environment,
    rank_environment,
)
from tests.support import make_job


def variables(overrides: dict[str, Any] | None = None, **given: Any) -> dict[str, EnvVariable]:
    arguments: dict[str, Any] = {
        "run_dir": "/runs/a",
        "attempt": 2,
        "ranks_on_node": 2,
        "single_node": True,
        "cores": 8,
        "backend_env": {},
        "inherited": {},
    }
    found = rank_environment(make_job(overrides), **{**arguments, **given})
    assert len({variable.name for variable in found}) == len(found)
    return {variable.name: variable for variable in found}


LAYERS = [
    ({"backend_env": {"X": "backend"}}, {}, "backend"),
    ({"backend_env": {"X": "backend"}}, {"platform.env": {"X": "platform"}}, "platform"),
    ({"inherited": {"X": "shell"}}, {"platform.env": {"X": "platform"}}, "shell"),
    ({"inherited": {"X": "shell"}}, {"platform.env": {"X": "platform"}, "env": {"X": "job"}}, "job"),
]


@pytest.mark.parametrize(("given", "overrides", "winner"), LAYERS)
def test_the_stronger_source_wins(given: dict[str, Any], overrides: dict[str, Any], winner: str):
    assert variables(overrides, **given)["X"].value == winner


def test_what_the_caller_exports_is_listed_only_where_it_decides_something():
    assert "HOME" not in variables(inherited={"HOME": "/home/somebody"})


@pytest.mark.parametrize(
    ("overrides", "given", "threads"),
    [
        ({}, {"cores": 8, "ranks_on_node": 2}, "4"),
        ({}, {"cores": 2, "ranks_on_node": 4}, "1"),
        ({}, {"cores": 8, "bound_cores": 2}, "2"),  # unequal shares: the smallest
        ({}, {"cores": 2, "bound_cores": 4}, "1"),  # a quota of 2 cores' time
        ({"launch.threads_per_rank": 5}, {"bound_cores": 2}, "5"),
        ({}, {"inherited": {"OMP_NUM_THREADS": "3"}}, "3"),
        ({"launch.threads_per_rank": 5}, {"inherited": {"OMP_NUM_THREADS": "3"}}, "5"),
        ({"launch.threads_per_rank": 5, "env": {"OMP_NUM_THREADS": "6"}}, {}, "6"),
    ],
)
def test_threads_share_the_cores_unless_somebody_decides(
    overrides: dict[str, Any], given: dict[str, Any], threads: str
):
    assert variables(overrides, **given)["OMP_NUM_THREADS"].value == threads


def test_the_run_contract_is_in_every_rank():
    found = variables({"resume": "must", "launch.stop_grace_s": 30.0}, inherited={"PRIMUS_ATTEMPT": "77"})
    assert found["PRIMUS_RUN_DIR"].value == "/runs/a"
    assert found["PRIMUS_ATTEMPT"].value == "2"
    assert found["PRIMUS_RESUME"].value == "must"
    assert found["PRIMUS_STOP_GRACE_S"].value == "30"
    assert all(variable.reason for variable in found.values())


def test_gloo_stays_on_loopback_on_one_node_only():
    assert variables()["GLOO_SOCKET_IFNAME"].value == "lo"
    assert "GLOO_SOCKET_IFNAME" not in variables(single_node=False)


def test_variables_of_the_launcher_are_refused_by_name():
    problems = environment_problems(make_job({"env": {"RANK": "0", "PRIMUS_RUN_DIR": "/x", "MINE": "1"}}))
    assert [problem.key for problem in problems] == ["env.RANK", "env.PRIMUS_RUN_DIR"]


FOUND = EnvVariable(name="X", value="found", reason="a test")
ASKED = EnvVariable(name="X", value="asked", reason="a test", over_shell=True)
HOOKED_VALUES = (HookVariable(name="X", value="hook", hook="prepare"),)
HOOKED = hook_variables(HookValues(variables=HOOKED_VALUES))


@pytest.mark.parametrize(
    ("given", "overrides", "winner"),
    [
        ({"asked": [FOUND]}, {"platform.env": {"X": "platform"}}, "found"),
        ({"asked": [FOUND], "inherited": {"X": "shell"}}, {}, "shell"),
        ({"asked": [ASKED], "inherited": {"X": "shell"}}, {}, "asked"),
        ({"asked": [ASKED], "hooks": HOOKED}, {}, "hook"),
        ({"hooks": HOOKED}, {"env": {"X": "job"}}, "job"),
    ],
)
def test_hooks_and_what_is_asked_for_stand_between_shell_and_job(
    given: dict[str, Any], overrides: dict[str, Any], winner: str
):
    assert variables(overrides, **given)["X"].value == winner


def test_a_variable_of_a_hook_names_the_hook_and_extra_values_are_one_json():
    found = hook_variables(HookValues(variables=HOOKED_VALUES, extra={"data": {"rows": 12}}), own=True)
    assert [(v.name, v.value, v.reason, v.own) for v in found] == [
        ("X", "hook", "hook prepare", True),
        ("PRIMUS_EXTRA", '{"data": {"rows": 12}}', "extra values of hooks", True),
    ]


def test_another_node_adds_only_what_the_first_did_not_decide():
    own = [FOUND, EnvVariable(name="Y", value="found", reason="a test"), EnvVariable(name="Z", value="", reason="")]
    added = own_environment(own, shared={"X": "decided"}, inherited={"Y": "shell"})
    assert [variable.name for variable in added] == ["Z"]


@pytest.mark.parametrize("name", ["PRIMUS_EXTRA", "PRIMUS_HOOK_NAME", "PRIMUS_NODE", "PRIMUS_PARENT_PID"])
def test_what_tells_hooks_and_nodes_who_they_are_is_the_launcher_s(name: str):
    assert environment_problems(make_job({"env": {name: "1"}}))


SLURMS = {"ROCR_VISIBLE_DEVICES": "3,4,5", "CUDA_VISIBLE_DEVICES": "3,4,5", "GPU_DEVICE_ORDINAL": "3,4,5"}
AMD = {"platform.name": "mi300x", "platform.vendor": "amd", "platform.gpus_per_node": 8}


def test_masks_that_slurm_wrote_twice_count_what_the_first_leaves() -> None:
    found = variables(AMD, inherited=SLURMS)

    assert {name: found[name].value for name in SLURMS if name in found} == {
        "CUDA_VISIBLE_DEVICES": "0,1,2",
        "GPU_DEVICE_ORDINAL": "0,1,2",
    }


@pytest.mark.parametrize(
    ("platform", "inherited"),
    [
        (AMD, {"ROCR_VISIBLE_DEVICES": "4,5,0", "HIP_VISIBLE_DEVICES": "2,1"}),
        (AMD, {"ROCR_VISIBLE_DEVICES": "GPU-1", "HIP_VISIBLE_DEVICES": "GPU-1"}),
        (AMD, {"CUDA_VISIBLE_DEVICES": "3,4"}),
        ({**AMD, "platform.name": "h100", "platform.vendor": "nvidia"}, SLURMS),
    ],
)
def test_other_masks_stay_as_they_are(platform: dict[str, Any], inherited: dict[str, str]) -> None:
    assert not inherited.keys() & variables(platform, inherited=inherited).keys()


def test_what_the_job_says_of_a_mask_wins() -> None:
    found = variables({**AMD, "env": {"CUDA_VISIBLE_DEVICES": "1"}}, inherited=SLURMS)

    assert found["CUDA_VISIBLE_DEVICES"].value == "1"
