"""What a node that is not the first adds to the environment of its ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from primus_hydra.config.layout import layout_of
from primus_hydra.errors import HostError
from primus_hydra.hooks.record import write_record
from primus_hydra.hooks.values import HookValues, HookVariable
from primus_hydra.host.network import NetworkFacts, read_network
from primus_hydra.launch import node_environment
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.node_environment import Prepared, prepare_node
from primus_hydra.runtime.spec import AttemptSpec
from tests.support import make_job
from tests.unit.host.networks import ANYWHERE, interfaces, rdma_port, routes

SECOND = ClusterNode(job_id="1", restart=0, index=1, hosts=("127.0.0.1", "b.invalid"), port=10_000)


def prepare(folder: Path, overrides: dict[str, Any], environment: dict[str, str], facts: NetworkFacts) -> Prepared:
    job = make_job({"launch.nodes": 2, "parallel.dp_shard": 2, **overrides})
    layout, problems = layout_of(job)
    assert layout is not None, problems
    spec = AttemptSpec(
        run_dir=str(folder / "run"),
        attempt=1,
        layout=layout,
        data=None,
        resume_from=None,
        backend_version="1.0",
        environment=environment,
    )
    launched = HookValues(
        variables=(HookVariable(name="A", value="launch", hook="x"), HookVariable(name="B", value="launch", hook="x")),
        extra={"x": 1},
    )
    write_record(spec.attempt_paths.hooks(0), [], {"pre_launch": launched})
    with patch.object(node_environment, "read_network", lambda: facts):
        return prepare_node(spec, job, SECOND, inherited={}, python=[sys.executable])


@pytest.fixture
def facts(tmp_path: Path) -> NetworkFacts:
    return read_network(routes(rdma_port(interfaces(tmp_path / "machine", eth7=100), "mlx5_0"), {ANYWHERE: "eth7"}))


def script(folder: Path, text: str) -> dict[str, Any]:
    (folder / "hook.sh").write_text(text)
    return {"hooks": {"pre_train": [{"script": str(folder / "hook.sh")}]}}


def test_a_node_has_its_own_network_and_hooks_on_top_of_those_of_the_launch(tmp_path, facts):
    hooks = script(tmp_path, 'echo "env.B=$A $PRIMUS_HOOK_NODE"; echo env.C=own; echo extra.y=2')
    prepared = prepare(tmp_path, hooks, {"C": "env of the job"}, facts)
    assert prepared.refusal is None
    assert {variable.name: variable.value for variable in prepared.variables} == {
        "GLOO_SOCKET_IFNAME": "eth7",
        "A": "launch",
        "B": "launch 1",
        "PRIMUS_EXTRA": '{"x": 1, "y": 2}',
    }


def test_a_hook_that_fails_on_a_node_starts_no_rank_there(tmp_path, facts):
    prepared = prepare(tmp_path, script(tmp_path, "exit 9"), {}, facts)
    assert prepared.refusal is not None
    assert prepared.refusal.exit_code == 9
    assert prepared.refusal.log == tmp_path / "run/logs/hooks-node-1.log"


def test_a_network_that_the_node_cannot_serve_is_told_before_its_hooks_run(tmp_path):
    with pytest.raises(HostError):
        prepare(tmp_path, script(tmp_path, f"touch {tmp_path}/ran"), {}, NetworkFacts())
    assert not (tmp_path / "ran").exists()
