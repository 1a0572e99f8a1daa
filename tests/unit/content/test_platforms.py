"""Every shipped platform states sourced, dense, consistent facts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra import conf
from primus_hydra.config.build import build
from primus_hydra.config.schema import JobConfig, PlatformConfig

FOLDER = Path(conf.__file__).parent / "platform"
PER_NODE = {
    **dict.fromkeys(["mi250x", "mi300x", "mi325x", "mi350x", "mi355x"], 8),
    **dict.fromkeys(["a100_40gb", "a100_80gb", "h100", "h100_pcie", "h100_nvl", "h200", "b200", "l40s"], 8),
    **dict.fromkeys(["mi300a", "gb200"], 4),
}
GPUS = list(PER_NODE)
WITHOUT_FP8 = ("mi250x", "a100_40gb", "a100_80gb")

# Units x operations per clock and unit x GHz, from the architecture white papers: an account of the peaks that does not
# come from the data sheets that the files quote. 1.83 GHz is the tensor clock of the SXM board.
CDNA2 = {"float32": 256, "bfloat16": 1024, "float16": 1024}
CDNA3 = {"float32": 256, "tf32": 1024, "bfloat16": 2048, "float16": 2048, "fp8": 4096}
CDNA4 = {"float32": 256, "bfloat16": 4096, "float16": 4096, "fp8": 8192, "fp6": 16384, "fp4": 16384}
AMPERE = {"float32": 128, "tf32": 1024, "bfloat16": 2048, "float16": 2048}
ADA = {"float32": 256, "tf32": 512, "bfloat16": 1024, "float16": 1024, "fp8": 2048}
HOPPER = {"tf32": 2048, "bfloat16": 4096, "float16": 4096, "fp8": 8192}
MACHINES = {
    "mi250x": (110, 1.7, CDNA2),
    "mi300a": (228, 2.1, CDNA3),
    "mi300x": (304, 2.1, CDNA3),
    "mi325x": (304, 2.1, CDNA3),
    "mi350x": (256, 2.2, CDNA4),
    "mi355x": (256, 2.4, CDNA4),
    "a100_40gb": (108, 1.41, AMPERE),
    "a100_80gb": (108, 1.41, AMPERE),
    "h100": (132, 1.83, HOPPER),
    "h100_pcie": (114, 1.62, HOPPER),
    "h200": (132, 1.83, HOPPER),
    "l40s": (142, 2.52, ADA),
}


def tree(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return content


def platform(name: str) -> PlatformConfig:
    config, problems = build(PlatformConfig, tree(name)["platform"], prefix="platform")
    assert config is not None, problems
    return config


def test_the_choices_are_the_known_machines():
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {"auto", "cpu", *GPUS}


@pytest.mark.parametrize("name", ["auto", "cpu", *GPUS])
def test_a_platform_file_says_what_it_is_and_fills_nodes_of_the_job(name):
    first, second, *_ = (FOLDER / f"{name}.yaml").read_text().splitlines()
    assert first == "# @package _global_"  # Hydra's header ends at the first line of another kind
    assert second.startswith("# ")
    assert second.endswith(".")
    assert tree(name)["platform"]["name"] == name
    assert set(tree(name)) <= set(JobConfig.__dataclass_fields__)


def test_the_cpu_computes_exactly():
    assert platform("cpu").is_cpu
    assert tree("cpu")["precision"] == {"compute": "float32"}


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_states_every_number_that_plans_are_made_of(name):
    config = platform(name)
    assert config.vendor == ("amd" if name.startswith("mi") else "nvidia")
    assert config.gpus_per_node == PER_NODE[name]
    assert config.arch
    assert config.product_names
    assert config.source
    numbers = (config.memory_gib, config.memory_bandwidth_gb_s, config.link_bandwidth_gb_s, config.nic_bandwidth_gb_s)
    assert None not in numbers
    assert {"float32", "bfloat16", "float16"} <= set(config.peak_tflops)
    assert ("fp8" in config.peak_tflops) == (name not in WITHOUT_FP8)


@pytest.mark.parametrize("name", GPUS)
def test_every_number_has_its_source_beside_it(name):
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    assert unsourced(lines) == []


def test_a_number_without_a_source_would_be_noticed():
    lines = (FOLDER / "h100.yaml").read_text().splitlines()
    bare = [re.sub(r"(nic_bandwidth_gb_s: 50).*", r"\1", line) for line in lines]
    assert unsourced(bare) == ["  nic_bandwidth_gb_s: 50"]


def unsourced(lines: list[str]) -> list[str]:
    """Numbers without a comment on their line, above it, or above the group of peaks that they stand in."""
    missing = []
    for number, line in enumerate(lines):
        if not re.match(r" +\w+: [\d.]+", line) or "#" in line:
            continue
        head = lines.index("  peak_tflops:") if line.startswith("    ") else number
        if not lines[head - 1].strip().startswith("#"):
            missing.append(line)
    return missing


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_peaks_are_the_dense_ones_that_units_and_clock_give(name):
    units, clock_ghz, per_clock = MACHINES[name]
    peaks = platform(name).peak_tflops
    assert set(per_clock) <= set(peaks)
    for number_format, operations in per_clock.items():
        assert peaks[number_format] == pytest.approx(units * operations * clock_ghz / 1000, rel=1e-3), number_format


@pytest.mark.parametrize("name", GPUS)
def test_a_narrower_format_is_never_slower(name):
    peaks = platform(name).peak_tflops
    order = [peaks[name] for name in ("float32", "tf32", "bfloat16", "fp8", "fp6", "fp4") if name in peaks]
    assert order == sorted(order)
    assert peaks["float16"] == peaks["bfloat16"]


@pytest.mark.parametrize("name", GPUS)
def test_links_inside_a_node_are_faster_than_the_network_and_slower_than_memory(name):
    config = platform(name)
    assert config.nic_bandwidth_gb_s < config.link_bandwidth_gb_s < config.memory_bandwidth_gb_s


@pytest.mark.parametrize("name", GPUS)
def test_every_environment_variable_says_why(name):
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    for variable in platform(name).env:
        (place,) = [number for number, line in enumerate(lines) if line.strip().startswith(f"{variable}:")]
        assert lines[place - 1].strip().startswith("#")
