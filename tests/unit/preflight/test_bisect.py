"""The search for the node that makes a collective fail, with measurements that are known beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from primus_hydra.preflight.bisect import find_bad

Measure = Callable[[Sequence[str]], bool]


def nodes(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def slow(*bad: str) -> Measure:
    return lambda group: not set(group) & set(bad)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 16, 33])
def test_one_bad_node_is_found_wherever_it_is(count: int) -> None:
    for bad in nodes(count):
        search = find_bad(nodes(count), slow(bad))

        if count == 2:  # nothing that is good to measure them beside
            assert (search.bad, set(search.undecided)) == ((), set(nodes(2)))
        else:
            assert (search.bad, search.undecided, search.together) == ((bad,), (), False)


def test_a_search_among_many_takes_few_measurements() -> None:
    search = find_bad(nodes(1024), slow("n700"))

    assert search.bad == ("n700",)
    assert len(search.steps) <= 2 * math.log2(1024) + 2


def test_several_bad_nodes_are_found_together() -> None:
    assert set(find_bad(nodes(16), slow("n0", "n5", "n15")).bad) == {"n0", "n5", "n15"}


def test_a_bad_node_in_each_half_is_found_though_no_half_is_good() -> None:
    assert set(find_bad(nodes(4), slow("n1", "n2")).bad) == {"n1", "n2"}


def test_nobody_is_blamed_where_nothing_is_good() -> None:
    search = find_bad(nodes(6), lambda group: False)

    assert search.bad == ()
    assert set(search.undecided) == set(nodes(6))


def test_a_network_that_fails_only_when_all_use_it_is_no_nodes_fault() -> None:
    search = find_bad(nodes(8), lambda group: len(group) < 8)

    assert (search.bad, search.undecided, search.together) == ((), (), True)


def test_a_suspect_that_is_good_beside_a_good_node_is_cleared() -> None:
    # n2 and n3 are slow only with each other: a cable between the two, no node.
    search = find_bad(nodes(4), lambda group: not {"n2", "n3"} <= set(group))

    assert (search.bad, search.together) == ((), True)


def test_no_group_smaller_than_two_is_measured() -> None:
    sizes: list[int] = []

    def measure(group: Sequence[str]) -> bool:
        sizes.append(len(group))
        return "n2" not in group

    find_bad(nodes(7), measure)

    assert min(sizes) >= 2
