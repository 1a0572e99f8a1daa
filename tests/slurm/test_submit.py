"""Submission to a real Slurm, with nodes that do nothing but end as they are told."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

from primus_hydra.tasks.submission import CODE_FOLDER
from tests.slurm.conftest import TIMEOUT_S, Login

NASTY = "a'b\"c $HOME `id`;\n,é=\\"


def test_a_job_runs_on_its_nodes_and_its_exit_code_is_the_commands(login: Login) -> None:
    ended = login.submit("launch.nodes=2", "parallel.dp_shard=2", "env.STAND_IN=3:7", "launch.slurm.comment=a 'b' %j")

    assert ended.code == 7, ended.output
    assert "submitted mine as job" in ended.output
    assert "runs on node[" in ended.output
    assert login.cluster.state_of(login.submission().job_id) == "FAILED"


def test_values_reach_the_nodes_as_they_are(login: Login) -> None:
    ended = login.submit(f"env.VALUE={NASTY}", "launch.slurm.setup=[true]")

    assert ended.code == 0, ended.output
    assert repr(NASTY) in login.paths.submission(1).node_log(0).read_text()


def test_a_command_that_does_not_wait_leaves_at_once_and_the_run_is_found_again(login: Login) -> None:
    left = login.submit("launch.wait=false", "env.STAND_IN=60:0")
    job = login.until("RUNNING")
    login.until_at_work()
    shown = login.run("task=runs", "task.run=mine")
    again = login.submit("env.STAND_IN=60:0")
    stopped = login.run("task=runs", "task.run=mine", "task.action=stop")

    assert left.code == 0
    assert f"as job {job}" in left.output
    assert "task=runs" in left.output
    assert f"{job}, running on node1" in shown.output, shown.output
    assert again.code == 2
    assert f"submitted already, as job {job}" in again.output
    assert stopped.code == 0, stopped.output
    assert "saved" in stopped.output, stopped.output
    assert login.paths.submission(1).stop.exists()
    assert login.submission().number == 1


def test_a_job_that_waits_is_shown_with_its_reason_and_leaves_the_queue_when_it_is_stopped(login: Login) -> None:
    login.submit("launch.wait=false", "launch.slurm.sbatch_args.begin=now+1hour")
    listed = login.run("task=runs", "task.format=json")
    stopped = login.run("task=runs", "task.run=mine", "task.action=stop")
    shown = login.run("task=runs", "task.run=mine")

    run = json.loads(listed.output)[0]
    assert (run["word"], run["job"]["look"]["reason"]) == ("queued", "BeginTime")
    assert stopped.code == 0, stopped.output
    assert login.cluster.state_of(login.submission().job_id) == "CANCELLED"
    assert "gone before an attempt began" in shown.output, shown.output


def test_a_stopped_run_goes_on_as_another_job(login: Login) -> None:
    login.submit("launch.wait=false", "env.STAND_IN=60:0")
    login.until("RUNNING")
    login.until_at_work()
    login.run("task=runs", "task.run=mine", "task.action=stop")
    command = login.start(
        "hydra/launcher=submitit", "env.STAND_IN=0.2:0"
    )  # something else in the queue would not be touched
    assert command.wait(TIMEOUT_S) == 0, command.output

    assert login.submission().number == 2
    assert login.paths.attempt_numbers() == [1, 2]


def test_ctrl_c_asks_the_job_to_save_and_waits_for_it(login: Login) -> None:
    command = login.start("hydra/launcher=submitit", "env.STAND_IN=60:0")
    job = login.until("RUNNING")
    login.until_at_work()
    command.send_signal(signal.SIGINT)
    command.wait(TIMEOUT_S)
    output = command.output

    assert command.returncode == 130, output
    assert "asked to save" in output
    assert json.loads(login.paths.state.read_text())["status"] == "saved"
    assert login.cluster.state_of(job) == "FAILED"  # with 75, as the run says


def test_ctrl_c_twice_cancels_the_job_and_leaves(login: Login) -> None:
    command = login.start("hydra/launcher=submitit", "launch.slurm.nodelist=node1", "env.STAND_IN=60:0")
    job = login.until("RUNNING")
    command.send_signal(signal.SIGINT)
    command.send_signal(signal.SIGTERM)
    command.wait(TIMEOUT_S)

    assert command.returncode == 130
    assert login.cluster.state_of(job) in ("COMPLETING", "CANCELLED", "FAILED")


def test_a_submitter_that_is_killed_leaves_its_job_alone(login: Login) -> None:
    command = login.start("hydra/launcher=submitit", "env.STAND_IN=4:0")
    job = login.until("RUNNING")
    command.send_signal(signal.SIGKILL)
    command.wait(TIMEOUT_S)
    login.until("COMPLETED", job)
    shown = login.run("task=runs", "task.run=mine")

    assert "mine: finished" in shown.output, shown.output


def test_an_option_that_slurm_refuses_is_told_in_its_words_and_nothing_is_left(login: Login) -> None:
    ended = login.submit("launch.slurm.partition=nope")

    assert ended.code == 2
    assert "launch.slurm.partition: sbatch refuses the job" in ended.output
    assert "nope" in ended.output
    # A copy of the code may stay, for the next job that has the same.
    assert [path.name for path in (login.folder / "runs").iterdir()] == [CODE_FOLDER]


def test_without_sbatch_nothing_is_submitted(login: Login, tmp_path: Path) -> None:
    ended = login.submit(PATH=str(tmp_path))

    assert ended.code == 3
    assert "sbatch is not installed" in ended.output
    assert not login.paths.root.exists()


def test_a_controller_that_is_away_for_a_while_makes_the_state_unknown_and_then_right(login: Login) -> None:
    command = login.start("hydra/launcher=submitit", "env.STAND_IN=25:0")
    login.until("RUNNING")
    login.until_at_work()
    login.cluster.stop_controller()
    shown = login.run("task=runs", "task.run=mine")
    login.cluster.start_controller()
    command.wait(TIMEOUT_S)
    output = command.output

    assert "cannot be asked for it" in shown.output
    assert "mine: failed" not in shown.output
    assert command.returncode == 0, output


def test_a_requeue_is_told_and_waited_for(login: Login) -> None:
    command = login.start("hydra/launcher=submitit", "env.STAND_IN=3:0")
    job = login.until("RUNNING")
    login.until_at_work()
    login.cluster.run("scontrol", "requeue", job)
    command.wait(TIMEOUT_S)
    output = command.output

    assert command.returncode == 0, output
    assert "went back into the queue" in output
    assert login.paths.attempt_numbers() == [1, 2]


def test_the_points_of_a_sweep_are_all_submitted_before_any_is_waited_for(login: Login) -> None:
    points = ["-m", "optimizer.lr=1e-3,2e-3", "launch.slurm.partition=main,nope", "env.STAND_IN=0.2:0"]
    began = time.monotonic()
    ended = login.submit(*points)

    assert ended.code == 2, ended.output
    assert ended.output.count("sbatch refuses the job") >= 2
    assert "2 finished, 2 not submitted" in ended.output, ended.output
    assert time.monotonic() - began < TIMEOUT_S


def test_the_script_starts_the_same_job_when_it_is_submitted_from_elsewhere(login: Login, tmp_path: Path) -> None:
    login.submit()
    copy = tmp_path / "copy.sh"
    copy.write_text(login.paths.submission(1).script.read_text())
    job = login.cluster.run("sbatch", "--parsable", "--chdir=/", f"--export=ALL,PYTHONPATH={_path(login)}", str(copy))
    login.until("COMPLETED", job.strip())

    assert login.paths.attempt_numbers() == [1, 2]


def _path(login: Login) -> str:
    return login.environment()["PYTHONPATH"]


def test_the_script_is_clean_for_bash_and_shellcheck(login: Login) -> None:
    login.submit("launch.nodes=2", "parallel.dp_shard=2", "launch.slurm.setup=[true]")
    script = login.paths.submission(1).script

    subprocess.run(["bash", "-n", str(script)], check=True)
    subprocess.run(["shellcheck", str(script)], check=True)
