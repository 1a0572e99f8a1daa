"""The tests between nodes, with a network that is known beforehand in place of processes on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from primus_hydra.config.schema import LimitsConfig
from primus_hydra.measure.rates import bus_factor
from primus_hydra.measure.session import Session
from primus_hydra.preflight.finding import Finding
from primus_hydra.preflight.names import chosen_tests
from primus_hydra.preflight.network_stage import NetworkStage
from primus_hydra.preflight.wanted import Wanted
from tests.support import make_job

FAST, SLOW = 10.0, 0.1
"""GB/s of a node's link."""


class Cable:
    """Answers as devices of nodes whose links have the given bandwidths; `dead` nodes never finish a collective."""

    def __init__(self, links: Mapping[int, float], dead: tuple[int, ...] = (), silent: tuple[int, ...] = ()) -> None:
        self.hosts = tuple(f"n{index}" for index in links)
        self.lost: dict[int, str] = {}
        self.groups: list[tuple[int, ...]] = []
        self._links = links
        self._dead = dead
        self._silent = silent

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(index for index in self._links if index not in self.lost)

    def ask(self, questions: Mapping[int, Mapping[str, Any]], limit_s: float) -> dict[int, dict[str, Any]]:
        asked = {index: question for index, question in questions.items() if index not in self.lost}
        if any(question["act"] == "start" for question in asked.values()):
            return {index: {"value": []} for index in asked}
        kinds = {index: question["questions"][0] for index, question in asked.items()}
        if all(kind["do"] == "store" for kind in kinds.values()):
            return {index: {"value": [{"value": {"port": 1}}]} for index in kinds}
        by_key: dict[str, list[int]] = {}
        for index, kind in kinds.items():
            by_key.setdefault(kind["key"], []).append(index)
        answers: dict[int, dict[str, Any]] = {}
        for group in by_key.values():
            answers |= self._collective(group, kinds[group[0]], limit_s)
        return answers

    def _collective(self, group: list[int], kind: Mapping[str, Any], limit_s: float) -> dict[int, dict[str, Any]]:
        self.groups.append(tuple(group))
        for index in set(group) & set(self._silent):
            self.lost[index] = f"it did not answer within {limit_s:g} s"
        if len(group) != kind["world"] or set(group) & {*self._dead, *self.lost}:
            return {index: {"value": [{"error": "timed out"}]} for index in group if index not in self.lost}
        rate = min(self._links[index] for index in group) / bus_factor(kind["op"], kind["world"])
        seconds = [mib * 2**20 / 1e9 / rate for mib in kind["mib"]]
        return {index: {"value": [{"value": {"seconds": seconds, "best_seconds": seconds}}]} for index in group}


def stage(cable: Cable, tests: list[str], **limits: float) -> tuple[dict[str, dict[str, str]], NetworkStage]:
    """Run the tests; return for each node the word of each."""
    job = make_job()
    job = make_job({"platform.limits": vars(LimitsConfig(**{**vars(job.platform.limits), **limits}))})
    chosen, _ = chosen_tests("full", tests, [])
    wanted = Wanted(suite="full", tests=chosen, devices=1, sizes_mib=(1.0,), join_s=1, limit_s=1, start_s=1)
    found: dict[str, dict[str, str]] = {host: {} for host in cable.hosts}

    def add(index: int, finding: Finding) -> None:
        found[cable.hosts[index]][finding.test] = finding.word

    ready = cable.nodes
    made = NetworkStage(cast(Session, cable), job, wanted, add, lambda text: None)
    made.test(ready)
    return found, made


def test_the_slow_node_alone_fails_in_every_test_and_without_any_limit() -> None:
    cable = Cable({0: FAST, 1: FAST, 2: SLOW, 3: FAST})
    found, _ = stage(cable, ["p2p", "ring", "all_reduce", "all_to_all"])

    assert set(found["n2"].values()) == {"fail"}
    assert {word for host in ("n0", "n1", "n3") for word in found[host].values()} == {"pass"}


def test_what_the_pairs_have_shown_is_not_searched_for_again() -> None:
    cable = Cable({0: FAST, 1: FAST, 2: SLOW, 3: FAST})
    stage(cable, ["p2p", "all_reduce"])

    assert cable.groups[-2:] == [(0, 1, 2, 3), (0, 1, 3)]


def test_a_limit_of_the_platform_lets_the_search_begin_without_pairs() -> None:
    cable = Cable({index: SLOW if index == 5 else FAST for index in range(8)})
    found, _ = stage(cable, ["all_reduce"], network_gb_s=5.0)

    assert [host for host, words in found.items() if words["all_reduce"] == "fail"] == ["n5"]
    assert cable.groups[0] == tuple(range(8))
    assert len(cable.groups[-1]) == 2


def test_a_node_whose_collectives_hang_is_found_like_a_slow_one() -> None:
    found, _ = stage(Cable({0: FAST, 1: FAST, 2: FAST, 3: FAST}, dead=(1,)), ["all_reduce"], network_gb_s=5.0)

    assert {host: words["all_reduce"] for host, words in found.items()} == {
        "n0": "pass",
        "n1": "fail",
        "n2": "pass",
        "n3": "pass",
    }


def test_a_node_that_falls_silent_in_a_collective_is_left_to_the_session_and_the_others_are_judged() -> None:
    cable = Cable({0: FAST, 1: FAST, 2: FAST, 3: FAST}, silent=(3,))
    found, _ = stage(cable, ["all_reduce"], network_gb_s=5.0)

    assert cable.lost == {3: "it did not answer within 6 s"}
    assert [found[host].get("all_reduce") for host in cable.hosts] == ["pass", "pass", "pass", None]


def test_two_nodes_that_are_slow_together_leave_both_unknown() -> None:
    found, _ = stage(Cable({0: FAST, 1: SLOW}), ["all_reduce"], network_gb_s=5.0)

    assert [words["all_reduce"] for words in found.values()] == ["unknown", "unknown"]


def test_one_node_has_no_network_to_test() -> None:
    found, _ = stage(Cable({0: FAST}), ["p2p", "all_reduce"])

    assert found == {"n0": {"p2p": "skip", "all_reduce": "skip"}}
