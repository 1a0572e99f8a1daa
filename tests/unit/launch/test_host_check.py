"""Training for a platform that this machine is not is refused, with the ways out."""

from __future__ import annotations

from pathlib import Path

import yaml

from primus_hydra import conf
from primus_hydra.config.build import build
from primus_hydra.config.schema import PlatformConfig
from primus_hydra.host.cores import Cores
from primus_hydra.host.detect import Detection
from primus_hydra.host.gpu import Gpu
from primus_hydra.launch.host_check import host_problems


def platform(name: str, **changes: object) -> PlatformConfig:
    tree = yaml.safe_load((Path(conf.__file__).parent / f"platform/{name}.yaml").read_text())["platform"]
    config, problems = build(PlatformConfig, {**tree, **changes})
    assert config is not None, problems
    return config


def machine(name: str | None, *gpus: Gpu, notes: tuple[str, ...] = ()) -> Detection:
    return Detection(platform=name, gpus=gpus, cores=Cores(logical=4, physical=2), notes=notes)


CPU = machine("cpu")
H200 = Gpu(vendor="nvidia", names=("NVIDIA H200",))
MI300X = Gpu(vendor="amd", names=("1002:74a1",), arch="gfx942")


def test_a_cpu_job_runs_on_every_machine():
    assert host_problems(platform("cpu"), CPU) == []
    assert host_problems(platform("cpu"), machine("h200", *[H200] * 8)) == []


def test_a_job_runs_on_its_own_machine():
    assert host_problems(platform("mi300x"), machine("mi300x", *[MI300X] * 8)) == []


def test_a_gpu_job_on_a_machine_without_gpus_gets_all_ways_out():
    (problem,) = host_problems(platform("mi300x"), CPU)
    assert problem.key == "platform"
    for words in ("mi300x", "no GPU", "platform=cpu", "task=plan", "srun or torchrun"):
        assert words in str(problem)
    assert "platform=auto" not in str(problem)


def test_a_job_for_another_gpu_is_offered_the_one_that_is_here():
    (problem,) = host_problems(platform("mi300x"), machine("h200", *[H200] * 8))
    assert "8 x NVIDIA H200" in problem.what
    assert "platform=auto" in str(problem.hint)
    assert "product_names" not in str(problem.hint)


def test_the_notes_of_the_detection_reach_the_user():
    (problem,) = host_problems(platform("mi300x"), machine("cpu", notes=("/dev/kfd is missing",)))
    assert "/dev/kfd is missing" in str(problem)


def test_the_same_gpu_by_another_name_can_be_named():
    other = machine(None, Gpu(vendor="nvidia", names=("NVIDIA H200 SXM",)))
    (problem,) = host_problems(platform("h200"), other)
    assert "platform.product_names" in str(problem.hint)
    assert host_problems(platform("h200", product_names=["NVIDIA H200 SXM"], gpus_per_node=1), other) == []


def test_a_platform_without_names_takes_every_gpu_of_its_vendor():
    nameless = platform("h200", product_names=[], gpus_per_node=1)
    assert host_problems(nameless, machine(None, Gpu(vendor="nvidia", names=("NVIDIA H20",)))) == []
    assert host_problems(nameless, machine("mi300x", MI300X)) != []


def test_one_strange_gpu_among_the_right_ones_is_refused():
    assert host_problems(platform("h200"), machine(None, H200, Gpu(vendor="nvidia", names=("NVIDIA T400",)))) != []


def test_more_gpus_than_the_machine_has_is_refused_with_the_number():
    (problem,) = host_problems(platform("h200"), machine("h200", *[H200] * 4))
    assert "use platform.gpus_per_node=4" in str(problem)
    assert host_problems(platform("h200"), machine("h200", *[H200] * 4), ranks_per_node=4) == []
    (problem,) = host_problems(platform("h200"), machine("h200", *[H200] * 4), ranks_per_node=5)
    assert "use launch.ranks_per_node=4" in str(problem)
