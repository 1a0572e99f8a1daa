"""The tests of a node's devices, each in its own process: memory, product, copy, and collectives within the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from primus_hydra.config.schema import JobConfig
from primus_hydra.measure.groups import Ask, measure_groups
from primus_hydra.measure.precision import PRODUCT_ERRORS
from primus_hydra.measure.session import Session
from primus_hydra.preflight.finding import Finding, at_least
from primus_hydra.preflight.limits import copy_limit, gemm_limit, local_limit
from primus_hydra.preflight.peers import slow_among
from primus_hydra.preflight.wanted import Wanted, allocate_mib, copy_mib, gemm_size

Add = Callable[[int, Finding], None]


class DeviceStage:
    """Asks the devices of all nodes; `ready` are the nodes all of whose devices answer."""

    def __init__(self, session: Session, job: JobConfig, wanted: Wanted, add: Add) -> None:
        self._session = session
        self._job = job
        self._wanted = wanted
        self._add = add
        self._broken: set[int] = set()
        self.seen: dict[int, dict[str, Any]] = {}

    @property
    def ready(self) -> tuple[int, ...]:
        """The nodes that may take part in collectives."""
        return tuple(index for index in self._session.nodes if index in self.seen and index not in self._broken)

    def start(self) -> None:
        """Start the processes."""
        question = {"act": "start", "count": self._wanted.devices}
        for index, answer in self._session.ask_all(question, self._wanted.start_s).items():
            said = answer.get("value", [{"error": answer.get("error")}])
            wrong = _errors(said)
            if wrong:
                self._broken.add(index)
                self._add(index, Finding(test="device", word="fail", detail=wrong))
            else:
                self.seen[index] = dict(said[0]["value"])

    def test(self) -> None:
        """Make the tests that were asked for, each on all devices of all nodes at once."""
        if self._wanted.wants("allocate"):
            self._each("allocate", {"do": "allocate", "mib": allocate_mib(self._job)}, self._allocated)
        if self._wanted.wants("gemm"):
            size, dtype = gemm_size(self._job, self._wanted.suite), self._dtype()
            self._each("gemm", {"do": "gemm", "m": size, "n": size, "k": size, "dtype": dtype}, self._multiplied)
        if self._wanted.wants("copy"):
            self._each("copy", {"do": "copy", "mib": copy_mib(self._job)}, self._copied)
        for op in ("all_reduce", "all_to_all"):
            if self._wanted.wants(f"local_{op}"):
                self._together(op)

    def _each(
        self, test: str, question: Mapping[str, Any], judge: Callable[[dict[int, list[dict[str, Any]]]], None]
    ) -> None:
        message = {"act": "ask", "questions": [question] * self._wanted.devices}
        good: dict[int, list[dict[str, Any]]] = {}
        for index, answer in self._session.ask(dict.fromkeys(self.ready, message), self._wanted.limit_s).items():
            said = answer.get("value", [{"error": answer.get("error")}])
            wrong = _errors(said)
            if wrong:
                self._broken.add(index)
                self._add(index, Finding(test=test, word="fail", detail=wrong))
            else:
                good[index] = [one["value"] for one in said]
        judge(good)

    def _allocated(self, good: Mapping[int, list[dict[str, Any]]]) -> None:
        for index, said in good.items():
            detail = f"{said[0]['mib']} MiB on each of {len(said)}"
            self._add(index, Finding(test="allocate", word="pass", detail=detail))

    def _multiplied(self, good: dict[int, list[dict[str, Any]]]) -> None:
        right: dict[int, list[dict[str, Any]]] = {}
        for index, said in good.items():
            place = next((at for at, one in enumerate(said) if not _is_right(one, self._dtype())), None)
            if place is None:
                right[index] = said
                continue
            one = said[place]
            what = f"device {place}: the product is wrong (finite: {one['finite']}, relative error {one['error']:.2g})"
            self._add(index, Finding(test="gemm", word="fail", detail=what))
        # A smoke test multiplies matrices that are too small to be fast.
        limit = None if self._wanted.suite == "smoke" else gemm_limit(self._job.platform)
        self._judge("gemm", right, "tflops", limit, "TFLOP/s")

    def _copied(self, good: Mapping[int, list[dict[str, Any]]]) -> None:
        self._judge("copy", good, "gb_s", copy_limit(self._job.platform), "GB/s")

    def _judge(
        self, test: str, good: Mapping[int, list[dict[str, Any]]], name: str, limit: float | None, unit: str
    ) -> None:
        """Judge the slowest device of each node: by the limit, and on GPUs by the median of all devices' nodes."""
        slowest = {index: min((one[name], place) for place, one in enumerate(said)) for index, said in good.items()}
        peers = {str(index): value for index, (value, _) in slowest.items()}
        # Processors of one machine may be shared with anybody: how fast they are next to each other says nothing.
        slow = {} if self._job.platform.is_cpu else slow_among(peers, self._job.platform.limits.peer_fraction)
        for index, (value, place) in slowest.items():
            bound = max([one for one in (limit, slow.get(str(index))) if one is not None], default=None)
            self._add(index, at_least(test, value, bound, unit, f"slowest is device {place}"))

    def _together(self, op: str) -> None:
        test, devices = f"local_{op}", self._wanted.devices
        if devices < 2:
            for index in self.ready:
                self._add(index, Finding(test=test, word="skip", detail="one device on each node"))
            return
        ask = Ask(op=op, mib=self._wanted.sizes_mib, devices=devices, limit_s=self._wanted.limit_s)
        for found in measure_groups(self._session, [[index] for index in self.ready], ask):
            (index,) = found.nodes
            if found.best is None:
                self._broken.add(index)
                self._add(index, Finding(test=test, word="fail", detail=next(iter(found.errors.values()))))
            else:
                self._add(index, at_least(test, found.best, local_limit(self._job.platform), "GB/s"))

    def _dtype(self) -> str:
        return "float32" if self._job.platform.is_cpu else "bfloat16"


def _is_right(one: Mapping[str, Any], dtype: str) -> bool:
    return bool(one["finite"]) and one["error"] <= PRODUCT_ERRORS[dtype]


def _errors(said: list[dict[str, Any]]) -> str:
    wrong = [f"device {place}: {one['error']}" for place, one in enumerate(said) if one.get("error")]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{wrong[0]}{more}" if wrong else ""
