"""A machine is named by its platform file, or said to be unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra import conf
from primus_hydra.errors import UserError
from primus_hydra.host.detect import Detection, detect_platform, platform_names
from tests.unit.host.machines import (
    AMD_SMI,
    NVIDIA_SMI,
    ROCM_SMI,
    Tools,
    amd_card,
    amd_node,
    amd_smi_6,
    amd_smi_7,
    nvidia_node,
    rocm_smi,
    write,
)

CONF = Path(conf.__file__).parent
OURS = platform_names([CONF])
MI300X = (0x74A1, 90402)


def found(root: Path, tools: Tools | None = None, env: dict[str, str] | None = None) -> Detection:
    return detect_platform(OURS, root=root, run=tools or Tools(), env=env or {})


def test_a_machine_without_gpus_is_a_cpu(tmp_path):
    detection = found(tmp_path)
    assert (detection.platform, detection.gpu_count, detection.problem, detection.notes) == ("cpu", 0, None, ())


@pytest.mark.parametrize(
    ("model", "platform"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100_80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H100 NVL", "h100_nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_nvidia_gpus_are_named_by_the_driver_without_a_tool(tmp_path, model, platform):
    tools = Tools()
    detection = found(nvidia_node(tmp_path, [model] * 8), tools)
    assert (detection.platform, detection.gpu_count, tools.calls) == (platform, 8, [])
    assert detection.seen == f"8 x {model}"


@pytest.mark.parametrize("model", ["NVIDIA A100 80GB PCIe", "NVIDIA H200 NVL", "NVIDIA GB300", "NVIDIA L40"])
def test_another_board_of_the_same_chip_is_not_taken_for_it(tmp_path, model):
    detection = found(nvidia_node(tmp_path, [model]))
    assert detection.platform is None
    assert model in str(detection.problem)
    assert f"product_names: ['{model}']" in str(detection.problem)


def test_nvidia_smi_answers_where_device_nodes_are_not_made_yet(tmp_path):
    tools = Tools({NVIDIA_SMI: "NVIDIA H200\nNVIDIA H200\n"})
    detection = found(nvidia_node(tmp_path, ["NVIDIA H200"] * 2, devices=[]), tools)
    assert (detection.platform, detection.gpu_count, detection.notes) == ("h200", 2, ())


def test_nvidia_smi_answers_where_the_driver_has_not_read_the_model_yet(tmp_path):
    tools = Tools({NVIDIA_SMI: "NVIDIA B200\n"})
    assert found(nvidia_node(tmp_path, ["Unknown"]), tools).platform == "b200"


def test_only_the_gpus_given_to_a_container_count(tmp_path):
    assert found(nvidia_node(tmp_path, ["NVIDIA H200"] * 8, devices=[2, 5])).gpu_count == 2


def test_a_container_without_its_gpus_is_a_cpu_and_says_so(tmp_path):
    detection = found(nvidia_node(tmp_path, ["NVIDIA H200"] * 8, devices=[]))
    assert detection.platform == "cpu"
    assert "8 NVIDIA GPU(s)" in detection.notes[0]
    assert "--gpus all" in detection.notes[0]


@pytest.mark.parametrize(
    ("device_id", "version", "platform"),
    [
        (0x7408, 90010, "mi250x"),
        (0x74A0, 90402, "mi300a"),
        (0x74A1, 90402, "mi300x"),
        (0x74B5, 90402, "mi300x"),
        (0x74A5, 90402, "mi325x"),
        (0x74B9, 90402, "mi325x"),
        (0x75A0, 90500, "mi350x"),
        (0x75B0, 90500, "mi350x"),
        (0x75A3, 90500, "mi355x"),
        (0x75B3, 90500, "mi355x"),
    ],
)
def test_amd_gpus_are_named_by_their_pci_id_without_a_tool(tmp_path, device_id, version, platform):
    tools = Tools()
    detection = found(amd_node(tmp_path, [(device_id, version)] * 8), tools)
    assert (detection.platform, detection.gpu_count) == (platform, 8)
    assert [call for call in tools.calls if call != NVIDIA_SMI] == []


@pytest.mark.parametrize(
    "answer",
    [
        {AMD_SMI: amd_smi_6(["MI300X-O"] * 2)},
        {AMD_SMI: amd_smi_7(["AMD Instinct MI300X"] * 2)},
        {AMD_SMI: "WARNING: user is not in the render group\n" + amd_smi_7(["AMD Instinct MI300X VF"] * 2)},
        {ROCM_SMI: rocm_smi(["AMD Instinct MI300X OAM"] * 2)},
        {ROCM_SMI: rocm_smi(["AMD Instinct MI300X"] * 2, key="Card series")},
        {AMD_SMI: "[]", ROCM_SMI: rocm_smi(["AMD Instinct MI300X"] * 2)},
        {AMD_SMI: "[{", ROCM_SMI: rocm_smi(["AMD Instinct MI300X"] * 2)},
        {AMD_SMI: amd_smi_6(["N/A"] * 2), ROCM_SMI: rocm_smi(["AMD Instinct MI300X"] * 2)},
        {AMD_SMI: amd_smi_6(["AMD Instinct MI300X"] * 8)},  # the tool sees all, the container was given two
    ],
)
def test_a_new_pci_id_is_named_by_the_tools(tmp_path, answer):
    detection = found(amd_node(tmp_path, [(0x7FFF, 90402)] * 2), Tools(answer))
    assert (detection.platform, detection.gpu_count) == ("mi300x", 2)


def test_an_accelerator_that_no_file_knows_is_said_with_all_its_names(tmp_path):
    tools = Tools({AMD_SMI: amd_smi_7(["AMD Instinct MI210"])})
    detection = found(amd_node(tmp_path, [(0x740F, 90010)]), tools)
    assert detection.platform is None
    assert detection.seen == "1 x AMD Instinct MI210 (1002:740f, gfx90a)"
    for words in ("AMD Instinct MI210", "--config-dir", "platform=cpu"):
        assert words in str(detection.problem)


def test_different_gpus_in_one_machine_are_said(tmp_path):
    detection = found(nvidia_node(tmp_path, ["NVIDIA H200", "NVIDIA T400 4GB"]))
    assert (detection.platform, detection.mixed) == (None, True)
    assert "1 x NVIDIA H200, 1 x NVIDIA T400 4GB" in str(detection.problem)
    assert "CUDA_VISIBLE_DEVICES" in str(detection.problem)


def test_a_variable_that_leaves_one_kind_settles_a_mixed_machine(tmp_path):
    root = nvidia_node(tmp_path, ["NVIDIA H200", "NVIDIA T400 4GB"])
    assert found(root, env={"CUDA_VISIBLE_DEVICES": "0"}).platform == "h200"


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"ROCR_VISIBLE_DEVICES": "0,1,2,3"}, 4),
        ({"HIP_VISIBLE_DEVICES": "3"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "3,4"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4"}, 0),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f8d3e6f7a,GPU-b5c92e4d8a1f6c3b"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "0,-1,2"}, 1),
        ({"ROCR_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
    ],
)
def test_hidden_gpus_do_not_count(tmp_path, env, count):
    detection = found(amd_node(tmp_path, [MI300X] * 8), env=env)
    assert (detection.gpu_count, detection.platform) == (count, "mi300x" if count else "cpu")


def test_graphics_on_the_processors_die_are_not_an_accelerator(tmp_path):
    assert found(amd_node(tmp_path, [(0x1681, 100305), (0x150E, 110500)])).platform == "cpu"


def test_an_unreadable_topology_node_belongs_to_another_container(tmp_path):
    root = amd_node(tmp_path, [MI300X] * 2)
    properties = root / "sys/class/kfd/kfd/topology/nodes/3/properties"
    properties.unlink()
    properties.mkdir()  # reading it fails, also for root
    assert found(root).gpu_count == 1


def test_a_container_without_dev_kfd_is_a_cpu_and_says_so(tmp_path):
    detection = found(amd_node(tmp_path, [MI300X] * 8, kfd=False))
    assert detection.platform == "cpu"
    assert "--device=/dev/kfd" in detection.notes[0]


def test_an_accelerator_without_its_compute_driver_is_noted_and_a_graphics_card_is_not(tmp_path):
    amd_card(tmp_path, 0, device="0x74a1", pci_class="0x120000")
    amd_card(tmp_path, 1, device="0x744c", pci_class="0x030000")
    detection = found(tmp_path)
    assert detection.platform == "cpu"
    assert "1 AMD GPU(s)" in detection.notes[0]


def test_every_gpu_choice_has_names_and_no_name_fits_two_choices():
    assert {"auto", "cpu"} < set(OURS)
    for choice, names in OURS.items():
        assert bool(names) == (choice not in ("auto", "cpu"))
        for name in names:
            assert [other for other, patterns in OURS.items() if name in patterns] == [choice]


def test_a_users_folder_in_front_wins_and_adds(tmp_path):
    header = "# Ours, slower.\n# @package _global_\n"
    write(
        tmp_path,
        {
            "platform/h100.yaml": header + "platform:\n  product_names: [NVIDIA H100 PCIe]\n",
            "platform/plain.yaml": header,
        },
    )
    names = platform_names([tmp_path, CONF])
    assert (names["h100"], names["plain"], names["h200"]) == (["NVIDIA H100 PCIe"], [], ["NVIDIA H200"])


@pytest.mark.parametrize("text", ["platform: [", "platform:\n  product_names: NVIDIA H100\n"])
def test_a_platform_file_that_cannot_be_read_is_the_users_error_with_its_place(tmp_path, text):
    write(tmp_path, {"platform/broken.yaml": text})
    with pytest.raises(UserError, match=r"broken\.yaml"):
        platform_names([tmp_path])


def test_this_very_machine_can_be_looked_at():
    assert detect_platform(OURS).cores.usable >= 1
