from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.slurm.options import cpus_per_task, sbatch_options, slurm_problems, time_limit_s
from tests.support import make_job

GPU = {"platform": {"name": "mi300x", "vendor": "amd", "gpus_per_node": 8}}


def slurm(**values: Any) -> Any:
    return make_job({f"launch.slurm.{name}": value for name, value in values.items()})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("1:00:00", 3600), ("2-0", 172800), ("1-12:30", 131400), ("1-00:00:05", 86405)],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(text: str, seconds: int) -> None:
    assert time_limit_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1h", "1:2:3:4", "1:99:00", "-5", "1-"])
def test_what_sbatch_does_not_read_is_no_time_limit(text: str) -> None:
    assert time_limit_s(text) is None


def test_all_problems_are_told_at_once() -> None:
    job = slurm(
        time="soon",
        mem="lots",
        comment="two\nlines",
        nodelist="node[1-3]",
        exclude="node[2",
        sbatch_args={"partition": "x", "nodes": "4", "switches": "1", "-x": "1"},
        srun_args=["--mpi=none", "hostname", "--ntasks=3", "--mpi=pmix"],
    )

    assert {problem.key for problem in slurm_problems(job)} == {
        "launch.slurm.time",
        "launch.slurm.mem",
        "launch.slurm.comment",
        "launch.slurm.nodelist",
        "launch.slurm.exclude",
        "launch.slurm.sbatch_args.partition",
        "launch.slurm.sbatch_args.nodes",
        "launch.slurm.sbatch_args.-x",
        "launch.slurm.srun_args[1]",
        "launch.slurm.srun_args[2]",
        "launch.slurm.srun_args[3]",
    }


def test_a_good_job_has_no_problem() -> None:
    job = make_job({"launch.nodes": 4, "launch.slurm.nodelist": "node[1-3]", "launch.slurm.time": "1-00:00:00"})

    assert slurm_problems(job) == []


def test_an_option_given_twice_in_two_spellings_is_refused() -> None:
    [problem] = slurm_problems(slurm(sbatch_args={"mem-per-cpu": "1G", "mem_per_cpu": "2G"}))

    assert "twice" in problem.what


def test_a_limit_that_leaves_no_time_to_train_is_refused() -> None:
    [problem] = slurm_problems(slurm(time="1", signal_delay_s=90))

    assert problem.key == "launch.slurm.time"


def test_a_node_cannot_be_wanted_and_left_out() -> None:
    [problem] = slurm_problems(slurm(nodelist="node1", exclude="node[1-2]"))

    assert "node1" in problem.what


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"gres": "gpu:8"}),
        ({"gpu_type": "mi300x"}, {"gres": "gpu:mi300x:8"}),
        ({"gpu_option": "gpus_per_node", "gpus_per_node": 4}, {"gpus-per-node": "4"}),
        ({"gpu_option": "gpus_per_task"}, {"gpus-per-task": "8"}),
        ({"gpu_option": "none"}, {}),
    ],
)
def test_gpus_are_asked_for_as_the_site_wants(keys: dict[str, Any], expected: dict[str, str]) -> None:
    job = make_job({**GPU, **{f"launch.slurm.{name}": value for name, value in keys.items()}})
    options = sbatch_options(job, ranks_per_node=8)

    assert {name: value for name, value in options.items() if name.startswith("g")} == expected


def test_a_cpu_job_asks_for_a_core_for_each_thread_and_a_gpu_job_leaves_them_to_the_site() -> None:
    assert cpus_per_task(make_job({"launch.threads_per_rank": 3}), 4) == 12
    assert cpus_per_task(make_job(GPU), 8) is None
    assert cpus_per_task(make_job({"launch.slurm.exclusive": True}), 4) is None


def test_a_job_that_may_not_be_requeued_says_so_and_options_without_a_value_have_none() -> None:
    options = sbatch_options(slurm(requeue=False, sbatch_args={"contiguous": "true", "x11": None}), ranks_per_node=1)

    assert options["no-requeue"] is True
    assert options["contiguous"] is True
    assert not {"requeue", "x11", "gres"} & set(options)
