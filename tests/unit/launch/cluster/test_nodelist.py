"""Slurm's short form of node names is spelled out as `scontrol show hostnames` does."""

from __future__ import annotations

import pytest

from primus_hydra.launch.cluster.nodelist import expand


@pytest.mark.parametrize(
    ("nodelist", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("node[1,3],login", ["node1", "node3", "login"]),
        ("gpu-[008-010]", ["gpu-008", "gpu-009", "gpu-010"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[07,9-10]", ["n07", "n9", "n10"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("a[1-2].example,b-[3]x", ["a1.example", "a2.example", "b-3x"]),
    ],
)
def test_names_come_in_order_and_with_their_zeros(nodelist: str, names: list[str]) -> None:
    assert expand(nodelist) == names


@pytest.mark.parametrize("nodelist", ["", ",", "a,,b", "a[1-2", "a]1", "a[b-c]", "a[3-1]", "a[]", "a,"])
def test_what_is_no_list_is_refused(nodelist: str) -> None:
    with pytest.raises(ValueError, match=r"is no|ends before"):
        expand(nodelist)
