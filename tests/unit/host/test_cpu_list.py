"""CPU lists are read and written as the kernel does."""

from __future__ import annotations

import pytest

from primus_hydra.host.cpu_list import format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("7", {7}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,8-9", {0, 1, 8, 9}),
        ("0,2,4-6", {0, 2, 4, 5, 6}),
    ],
)
def test_a_list_is_its_set_of_cpus_and_back(text: str, cpus: set[int]):
    assert parse_cpu_list(text) == cpus
    assert format_cpu_list(cpus) == text


def test_the_line_feed_of_sysfs_is_no_part_of_it():
    assert parse_cpu_list("0-1,4\n") == {0, 1, 4}


def test_another_notation_is_an_error():
    with pytest.raises(ValueError, match="0x3"):
        parse_cpu_list("0x3")
