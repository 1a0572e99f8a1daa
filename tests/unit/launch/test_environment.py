"""Who wins for a variable of a rank, and what nobody may set."""

from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.launch.environment import EnvVariable, environment_problems, rank_environment
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
