"""The plan of a launch: what starts, with which arguments, or why nothing can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.layout import layout_of
from primus_hydra.errors import UserError
from primus_hydra.host.topology import NumaNode, Topology
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.environment import EnvVariable
from primus_hydra.launch.outer import OuterLaunch
from primus_hydra.launch.plan import BackendFacts, LaunchPlan, plan_launch
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.spec import AttemptSpec
from tests.support import make_job

OUTER = OuterLaunch(rank=1, world_size=2, local_rank=0, local_world_size=1, master_addr="head", master_port=29500)


TWO_NODES = Topology(
    nodes=(
        NumaNode(number=0, cores=(frozenset({0, 4}), frozenset({1, 5}))),
        NumaNode(number=1, cores=(frozenset({2, 6}), frozenset({3, 7}))),
    )
)


def plan(overrides: dict[str, Any] | None = None, **given: Any) -> LaunchPlan:
    job = make_job(overrides)
    layout, problems = layout_of(job)
    assert layout is not None, problems
    arguments: dict[str, Any] = {
        "paths": RunPaths(Path("/nowhere/run")),
        "attempt": 3,
        "data": None,
        "resume_from": 10,
        "backend": BackendFacts(version="1.0", env={"FROM_BACKEND": "1"}),
        "inherited": {},
        "cores": 4,
        "python": ["python"],
    }
    return plan_launch(job, layout, **{**arguments, **given})


def test_planning_writes_nothing():
    plan({"parallel.dp_shard": 2})
    assert not Path("/nowhere").exists()


def test_one_rank_needs_no_agent():
    planned = plan()
    assert planned.how == "rank"
    assert planned.argv == ("python", "-m", "primus_hydra.runtime.rank", "/nowhere/run/attempts/3/spec.json")
    assert planned.variables()["RANK"] == "0"
    assert planned.variables()["FROM_BACKEND"] == "1"


@pytest.mark.parametrize("overrides", [{"parallel.dp_shard": 2}, {"launch.max_restarts": 1}])
def test_several_ranks_or_restarts_need_the_agent(overrides: dict[str, Any]):
    planned = plan(overrides)
    assert planned.how == "agent"
    assert planned.argv[2] == "primus_hydra.launch.agent"
    assert "RANK" not in planned.variables()
    assert planned.watched == tuple(range(len(planned.ranks)))


def test_every_rank_is_planned_with_its_numbers():
    ranks = plan({"parallel.dp_shard": 2, "parallel.tp": 2}).ranks
    numbers = [{variable.name: variable.value for variable in rank.environment} for rank in ranks]
    assert [number["RANK"] for number in numbers] == ["0", "1", "2", "3"]
    assert {number["WORLD_SIZE"] for number in numbers} == {"4"}


def test_several_nodes_are_refused_with_the_ways_out():
    with pytest.raises(UserError) as refused:
        plan({"parallel.dp_shard": 2, "launch.nodes": 2, "env": {"RANK": "0"}})
    assert "submitit" in str(refused.value)
    assert "env.RANK" in str(refused.value)


def test_under_an_outer_launcher_only_the_own_rank_starts():
    planned = plan({"parallel.dp_shard": 2, "launch.nodes": 2}, outer=OUTER)
    assert planned.how == "joined"
    assert planned.watched == (1,)
    own = planned.variables()
    assert (own["RANK"], own["MASTER_ADDR"], own["MASTER_PORT"]) == ("1", "head", "29500")
    assert "GLOO_SOCKET_IFNAME" not in own
    assert planned.spec.joined


def test_an_outer_launch_of_another_size_is_refused_with_both_numbers():
    with pytest.raises(UserError, match="started 2 ranks, but this job has 1"):
        plan(outer=OUTER)


def test_bound_ranks_carry_their_cpus_and_threads_follow_from_them():
    planned = plan({"parallel.dp_shard": 2, "parallel.tp": 2}, topology=TWO_NODES)
    assert planned.spec.cpus == ("0,4", "1,5", "2,6", "3,7") == tuple(rank.cpus for rank in planned.ranks)
    assert planned.variables()["OMP_NUM_THREADS"] == "1"
    assert "2 NUMA nodes" in planned.binding.reason


@pytest.mark.parametrize(
    ("overrides", "given", "why"),
    [
        ({"launch.bind": "none"}, {}, "launch.bind=none"),
        ({"launch.nodes": 2}, {"outer": OUTER}, "the outer launcher decides"),
        ({}, {"topology": None}, "one NUMA node"),
    ],
)
def test_ranks_that_are_not_bound_have_no_cpus_and_a_reason(overrides: dict[str, Any], given: dict[str, Any], why: str):
    planned = plan({"parallel.dp_shard": 2, **overrides}, **{"topology": TWO_NODES, **given})
    assert planned.spec.cpus == ()
    assert [rank.cpus for rank in planned.ranks] == [None, None]
    assert why in planned.binding.reason


def test_a_spec_survives_the_way_to_the_ranks(tmp_path: Path):
    from tests.integration.toy.toy_launch import NO_DATA

    for data, topology in ((None, None), (NO_DATA, TWO_NODES)):
        spec = plan({"parallel.dp_shard": 2}, paths=RunPaths(tmp_path), data=data, topology=topology).spec
        assert AttemptSpec.read(spec.write()) == spec


OWN = EnvVariable(name="NCCL_IB_HCA", value="=mlx5_0:1", reason="a test", own=True)
HOOKED = EnvVariable(name="FROM_HOOK", value="1", reason="hook prepare")


def test_what_hooks_and_the_network_set_reaches_the_ranks():
    planned = plan(network=[OWN], hooks=[HOOKED])
    assert planned.variables()["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert planned.spec.environment["FROM_HOOK"] == "1"


def test_variables_of_this_node_only_are_not_in_the_spec_that_all_nodes_read():
    cluster = ClusterNode(job_id="1", restart=0, index=0, hosts=("a", "b"), port=10000)
    planned = plan({"launch.nodes": 2, "parallel.dp_shard": 2}, network=[OWN], hooks=[HOOKED], cluster=cluster)
    assert planned.variables()["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert planned.spec.environment["FROM_HOOK"] == "1"
    assert "NCCL_IB_HCA" not in planned.spec.environment


def test_strict_determinism_is_in_the_plan():
    assert plan({"determinism": {"mode": "strict"}}).variables()["PYTHONHASHSEED"] == "0"
