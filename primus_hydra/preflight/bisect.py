"""Which node makes a collective fail: halves are measured again, and suspects beside a node that is known to be good.

Pure: how a group is measured is given. Refuses to blame a node that was never measured beside a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Step:
    """One measurement of the search."""

    nodes: tuple[str, ...]
    good: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Search:
    """What came of it: nodes that are bad for sure, those that nothing can be said of, and how it was found out.

    `together`: every node is good beside another, and only all of them together are not: the network between them.
    """

    bad: tuple[str, ...]
    undecided: tuple[str, ...]
    steps: tuple[Step, ...]
    together: bool = False


def find_bad(nodes: Sequence[str], measure: Callable[[Sequence[str]], bool]) -> Search:
    """Search among nodes whose collective has failed already.

    For one bad node of n it takes about 2*log2(n) measurements of ever smaller groups and one for each suspect.
    """
    return _Bisection(measure).run(tuple(nodes))


class _Bisection:
    def __init__(self, measure: Callable[[Sequence[str]], bool]) -> None:
        self._measure = measure
        self._steps: list[Step] = []
        self._good: list[str] = []
        self._suspects: list[str] = []

    def run(self, nodes: tuple[str, ...]) -> Search:
        self._split(nodes)
        if not self._suspects:
            return Search(bad=(), undecided=(), steps=tuple(self._steps), together=True)
        reference = self._good[0] if self._good else self._find_good()
        if reference is None:
            return Search(bad=(), undecided=tuple(self._suspects), steps=tuple(self._steps))
        bad = tuple(one for one in self._suspects if one not in self._good and not self._clears(reference, one))
        return Search(bad=bad, undecided=(), steps=tuple(self._steps), together=not bad)

    def _split(self, group: tuple[str, ...]) -> None:
        """Take a group that is bad apart; a half of one node cannot be measured alone, so it is a suspect."""
        if len(group) <= 2:
            self._suspects += group
            return
        middle = (len(group) + 1) // 2
        for half in (group[:middle], group[middle:]):
            if len(half) == 1:
                self._suspects += half
            elif self._is_good(half, "half of a group that failed"):
                self._good += half
            else:
                self._split(half)

    def _find_good(self) -> str | None:
        """Where every half has failed, look for two nodes that are good together."""
        for place, one in enumerate(self._suspects):
            for other in self._suspects[place + 1 :]:
                tried = any(set(step.nodes) == {one, other} for step in self._steps)
                if not tried and self._is_good((one, other), "two suspects that may be good"):
                    self._good += [one, other]
                    return one
        return None

    def _clears(self, reference: str, suspect: str) -> bool:
        return self._is_good((reference, suspect), f"a suspect beside {reference}, which is good")

    def _is_good(self, group: tuple[str, ...], why: str) -> bool:
        good = self._measure(group)
        self._steps.append(Step(nodes=group, good=good, why=why))
        return good
