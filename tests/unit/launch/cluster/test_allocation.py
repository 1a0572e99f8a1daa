"""Which node of a job a task is, and where its nodes meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.errors import HostError, UserError
from primus_hydra.launch.cluster.allocation import cluster_node, meeting_port

TASK = {
    "SLURM_JOB_ID": "71",
    "SLURM_PROCID": "1",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_JOB_NODELIST": "node[3-4]",
}


def test_a_task_knows_its_node_and_the_first_host() -> None:
    node = cluster_node(TASK)
    assert (node.index, node.nodes, node.host, node.master, node.is_main) == (1, 2, "node4", "node3", False)
    assert node.run_id == "71.0"
    assert cluster_node({**TASK, "SLURM_RESTART_COUNT": "2"}).run_id == "71.2"


def test_outside_a_step_nothing_is_guessed() -> None:
    with pytest.raises(HostError, match="SLURM_PROCID is not set"):
        cluster_node({name: value for name, value in TASK.items() if name != "SLURM_PROCID"})
    with pytest.raises(HostError, match="no task of a Slurm step"):
        cluster_node({})


def test_all_mistakes_of_a_step_are_told_at_once() -> None:
    with pytest.raises(UserError) as raised:
        cluster_node({**TASK, "SLURM_NTASKS": "16", "MASTER_ADDR": "node9"})
    tasks, master = raised.value.problems
    assert "16 tasks were started on 2 nodes" in tasks.what
    assert "it is node9, but the first host of the allocation is node3" in master.what


@pytest.mark.parametrize("said", ["node3", "node3.example.com", ""])
def test_the_first_host_may_have_been_set_by_others(said: str) -> None:
    assert cluster_node({**TASK, "MASTER_ADDR": said}).master == "node3"


def test_each_start_has_ports_of_its_own_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    ports = {meeting_port("71", restart) for restart in range(50)} | {meeting_port(str(job), 0) for job in range(50)}
    assert len(ports) > 95
    assert all(10_000 <= port < 32_000 and port % 2 == 0 for port in ports)
    early = tmp_path / "range"
    early.write_text("11000 60999\n")
    assert 10_000 <= cluster_node(TASK, early).agents_port < 11_000
