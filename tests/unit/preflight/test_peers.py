"""Nodes held against each other."""

from __future__ import annotations

import pytest

from primus_hydra.preflight.peers import best_of_pairs, differing, pair_rounds, slow_among


def words(values: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    return {host: [one.word for one in found] for host, found in differing(values).items()}


def test_the_node_that_differs_from_the_majority_fails_and_says_in_what() -> None:
    found = differing({"a": {"driver": "6.10"}, "b": {"driver": "6.8"}, "c": {"driver": "6.10"}})

    assert [one.word for one in found["b"]] == ["fail"]
    assert found["b"][0].detail == "driver is 6.8, and 6.10 on 2 of 3 nodes"
    assert [one.word for one in found["a"] + found["c"]] == ["pass", "pass"]


def test_of_two_nodes_that_differ_nobody_knows_which_is_wrong() -> None:
    assert words({"a": {"torch": "2.1"}, "b": {"torch": "2.2"}}) == {"a": ["unknown"], "b": ["unknown"]}


def test_a_fact_that_a_node_lacks_is_a_difference() -> None:
    same = {"RDMA ports": "8 active"}

    assert words({"a": same, "b": {}, "c": same}) == {"a": ["pass"], "b": ["fail"], "c": ["pass"]}


def test_one_node_has_nothing_to_be_compared_with() -> None:
    assert words({"a": {"torch": "2.1"}}) == {"a": ["skip"]}


def test_a_node_far_below_the_median_is_slow_and_two_nodes_say_nothing() -> None:
    assert set(slow_among({"a": 100.0, "b": 98.0, "c": 40.0, "d": 101.0}, 0.5)) == {"c"}
    assert slow_among({"a": 100.0, "b": 1.0}, 0.5) == {}


def test_a_slow_node_makes_its_pairs_slow_and_not_its_neighbours() -> None:
    best = best_of_pairs({("a", "b"): 0.1, ("b", "c"): 0.2, ("c", "a"): 9.0})

    assert best == {"a": 9.0, "b": 0.2, "c": 9.0}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 9])
def test_every_node_meets_two_others_and_none_twice_in_a_round(count: int) -> None:
    rounds = pair_rounds(range(count))
    pairs = [pair for one in rounds for pair in one]

    for one in rounds:
        met = [node for pair in one for node in pair]
        assert len(met) == len(set(met))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    expected = 0 if count < 2 else 1 if count == 2 else 2
    assert all(sum(node in pair for pair in pairs) == expected for node in range(count))
    assert len(rounds) <= 3
