"""What each suite measures on the nodes of a session, as rows; what cannot be measured is a row that says why."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from primus_hydra.benchmark.result import Row
from primus_hydra.benchmark.shapes import attention_shape, gemms
from primus_hydra.config.count import parameter_count
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepare import open_order, open_samples, prepare_data
from primus_hydra.measure.groups import Ask, measure
from primus_hydra.measure.precision import ATTENTION_ERRORS, PRODUCT_ERRORS
from primus_hydra.measure.session import Session

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p", "ring")
_SAVED_BYTES = 12
"""Bytes of a parameter in a checkpoint: the weight and both moments of Adam in float32."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured: number formats, seconds for each product, buffers, and limits in seconds."""

    devices: int
    dtypes: tuple[str, ...]
    tokens: int | None
    backward: bool
    seconds: float
    ops: tuple[str, ...]
    sizes_mib: tuple[float, ...]
    calls: int
    state_mib: int
    limit_s: float
    start_s: float


Rows = tuple[list[Row], list[str]]


def measure_suite(suite: str, session: Session, job: JobConfig, plan: Plan, say: Callable[[str], None]) -> Rows:
    """Measure a suite; return its rows, and notes on what follows from them."""
    if suite == "dataloader":
        return dataloader(job, plan, say)
    say(f"starting {plan.devices} device process(es) on each of {len(session.nodes)} node(s)")
    problem = _start(session, plan)
    if problem:
        return [Row(name=suite, shape="", value=None, unit="", problem=problem)], []
    suites: Mapping[str, Callable[[], Rows]] = {
        "gemm": lambda: gemm(session, job, plan, say),
        "attention": lambda: attention(session, job, plan, say),
        "collectives": lambda: collectives(session, job, plan, say),
        "checkpoint": lambda: checkpoint(session, job, plan, say),
    }
    return suites[suite]()


def gemm(session: Session, job: JobConfig, plan: Plan, say: Callable[[str], None]) -> Rows:
    """Time the products of the model's layers on every device; the median device counts, the slowest is told."""
    vocab = job.model.vocab_size or job.tokenizer.vocab_size
    rows: list[Row] = []
    for dtype in plan.dtypes:
        for one in gemms(job, vocab, tokens=plan.tokens, backward=plan.backward):
            say(f"{one.name} {one.m}x{one.n}x{one.k} {dtype}")
            question = {"do": "gemm", "m": one.m, "n": one.n, "k": one.k, "dtype": dtype, "seconds": plan.seconds}
            shape = f"{one.m}x{one.n}x{one.k}"
            row = _of_devices(session, plan, question, "tflops", PRODUCT_ERRORS[dtype], (one.name, shape, dtype))
            rows.append(_with(row, count=one.count, peak=job.platform.peak_tflops.get(dtype)))
    return rows, _gemm_notes(rows, job)


def _gemm_notes(rows: Sequence[Row], job: JobConfig) -> list[str]:
    """Weigh the products as the model does: its layers spend most of their time in the largest."""
    notes = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        mine = [row for row in rows if row.dtype == dtype and row.seconds and row.value]
        if not mine:
            continue
        seconds = sum(row.count * (row.seconds or 0.0) for row in mine)
        work = sum(row.count * (row.seconds or 0.0) * (row.value or 0.0) for row in mine)
        peak = job.platform.peak_tflops.get(dtype)
        part = f", {100 * work / seconds / peak:.1f} % of the peak of {peak:g}" if peak else ""
        notes.append(
            f"{dtype}: all products of one microbatch take {seconds:.3g} s at {work / seconds:.3g} TFLOP/s{part}"
        )
    return notes


def attention(session: Session, job: JobConfig, plan: Plan, say: Callable[[str], None]) -> Rows:
    """Time the attention of one layer, forward and with the backward."""
    one = attention_shape(job)
    seq = one.seq if plan.tokens is None else plan.tokens
    shape = f"{one.batch}x{one.heads}/{one.kv_heads}x{seq}x{one.head_dim}"
    rows = []
    for dtype in (dtype for dtype in plan.dtypes if dtype in ATTENTION_ERRORS):
        say(f"attention {shape} {dtype}")
        question = {
            "do": "attention",
            "batch": one.batch,
            "heads": one.heads,
            "kv_heads": one.kv_heads,
            "seq": seq,
            "head_dim": one.head_dim,
            "value_dim": one.value_dim,
            "dtype": dtype,
            "backward": plan.backward,
            "seconds": plan.seconds,
        }
        bound, peak = ATTENTION_ERRORS[dtype], job.platform.peak_tflops.get(dtype)
        answers = _ask_devices(session, plan, question)
        forward = _row(answers, "tflops", "seconds", bound, ("attention forward", shape, dtype))
        rows.append(_with(forward, count=job.model.num_hidden_layers, peak=peak))
        if plan.backward and not forward.problem:
            both = _row(answers, "both_tflops", "both_seconds", bound, ("attention both", shape, dtype))
            rows.append(_with(both, count=job.model.num_hidden_layers, peak=peak))
    return rows, []


def collectives(session: Session, job: JobConfig, plan: Plan, say: Callable[[str], None]) -> Rows:
    """Time collectives over all devices of all nodes."""
    nodes = session.nodes
    ranks = len(nodes) * plan.devices
    if ranks < 2:
        problem = "one rank crosses no link: launch.ranks_per_node=2, or more nodes"
        return [Row(name=op, shape="", value=None, unit="GB/s", problem=problem) for op in plan.ops], []
    platform = job.platform
    peak = platform.link_bandwidth_gb_s if len(nodes) == 1 else platform.nic_bandwidth_gb_s
    rows = []
    for op in plan.ops:
        say(f"{op} over {ranks} ranks")
        if op == "p2p" and ranks % 2:
            rows.append(Row(name=op, shape="", value=None, unit="GB/s", problem="an odd number of ranks has no pairs"))
            continue
        dtype = plan.dtypes[0] if plan.dtypes[0] != "tf32" else "float32"
        ask = Ask(
            op=op,
            mib=plan.sizes_mib,
            devices=plan.devices,
            limit_s=plan.limit_s,
            dtype=dtype,
            calls=plan.calls,
        )
        found = measure(session, nodes, ask)
        if found.errors:
            problem = "; ".join(f"{session.hosts[node]}: {error}" for node, error in found.errors.items())
            rows.append(Row(name=op, shape="", value=None, unit="GB/s", dtype=dtype, problem=problem))
            _start(session, plan)
            continue
        rows += [
            Row(
                name=op,
                shape=f"{mib:g} MiB x {ranks} ranks",
                value=gb_s,
                unit="GB/s",
                dtype=dtype,
                seconds=seconds,
                # Between nodes a collective uses all adapters of a node, so one adapter's rate bounds these alone.
                peak=peak if len(nodes) == 1 or op in ("p2p", "ring") else None,
            )
            for mib, gb_s, seconds in zip(plan.sizes_mib, found.gb_s, found.seconds, strict=True)
        ]
    return rows, []


def dataloader(job: JobConfig, plan: Plan, say: Callable[[str], None]) -> Rows:
    """Read samples as a rank does, in this process, first as they lie and then in the order of the training."""
    prepared = prepare_data(job, report=lambda text, *rest: say(text))
    if prepared.blend is not None:
        problem = "an indexed data set is read by Megatron, not by us"
        return [Row(name="dataloader", shape="", value=None, unit="tokens/s", problem=problem)], []
    samples = open_samples(prepared, job, "train")
    order = open_order(samples, job, "train")
    readers = {"in sequence": lambda place: place % len(samples), f"{job.data.order}": order.index}
    rows = [_read(f"samples {name}", samples.sample, index, job, plan.seconds) for name, index in readers.items()]
    need = job.training.seq_length * _samples_of_rank(job)
    rate = min(row.value or 0.0 for row in rows)
    return rows, [
        f"one microbatch of a rank has {need} tokens: reading them takes {1e3 * need / rate:.3g} ms in one process"
    ]


def _read(name: str, sample: Callable[[int], Any], index: Callable[[int], int], job: JobConfig, seconds: float) -> Row:
    sample(index(0))
    count, began = 0, time.perf_counter()
    while (taken := time.perf_counter() - began) < seconds:
        sample(index(count))
        count += 1
    length = job.training.seq_length
    return Row(name=name, shape=f"seq {length}", value=count * length / taken, unit="tokens/s", seconds=taken / count)


def checkpoint(session: Session, job: JobConfig, plan: Plan, say: Callable[[str], None]) -> Rows:
    """Write and read a state on the disk of the runs, from the first device of the first node."""
    folder = str(Path(job.run.dir).expanduser().absolute())
    rows: list[Row] = []
    for method in ("torch", "dcp"):
        say(f"checkpoint of {plan.state_mib} MiB by {method}")
        question = {"do": "checkpoint", "folder": folder, "mib": plan.state_mib, "method": method}
        answer = _first(session, plan, question)
        shape = f"{plan.state_mib} MiB"
        if "error" in answer:
            rows.append(Row(name=method, shape=shape, value=None, unit="GB/s", problem=str(answer["error"])))
            continue
        said = answer["value"]
        cached = "" if said["dropped"] else " (from memory)"
        for name, seconds in ((f"{method} write", said["write_s"]), (f"{method} read{cached}", said["read_s"])):
            rate = said["bytes"] / seconds / 1e9
            rows.append(Row(name=name, shape=shape, value=rate, unit="GB/s", dtype="float32", seconds=seconds))
    return rows, _checkpoint_notes(rows, job)


def _checkpoint_notes(rows: Sequence[Row], job: JobConfig) -> list[str]:
    written = next((row.value for row in rows if row.value and "write" in row.name), None)
    if written is None:
        return []
    vocab = job.model.vocab_size or job.tokenizer.vocab_size
    size = _SAVED_BYTES * parameter_count(job.model, vocab) / 1e9
    return [f"weights and optimizer of {job.model.name} are {size:.3g} GB: {size / written:.3g} s for one such writer"]


def _samples_of_rank(job: JobConfig) -> int:
    micro = job.training.micro_batch_size
    return micro if isinstance(micro, int) else 1


def _start(session: Session, plan: Plan) -> str:
    """Start the devices' processes; return what went wrong."""
    answers = session.ask_all({"act": "start", "count": plan.devices}, plan.start_s)
    wrong = [f"{session.hosts[index]}: {text}" for index, text in session.lost.items()]
    for index, answer in answers.items():
        said = answer.get("value", [answer])
        wrong += [f"{session.hosts[index]}: {one['error']}" for one in said if "error" in one]
    return "; ".join(wrong[:3])


def _ask_devices(session: Session, plan: Plan, question: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = {"act": "ask", "questions": [question] * plan.devices}
    answers = session.ask_all(message, plan.limit_s)
    return [one for answer in answers.values() for one in answer.get("value", [answer])]


def _first(session: Session, plan: Plan, question: Mapping[str, Any]) -> dict[str, Any]:
    message = {"act": "ask", "questions": [question, *[None] * (plan.devices - 1)]}
    answer = session.ask({0: message}, plan.limit_s).get(0, {"error": "no answer"})
    found: dict[str, Any] = answer if "error" in answer else answer["value"][0]
    return found


def _of_devices(
    session: Session, plan: Plan, question: Mapping[str, Any], rate: str, bound: float, what: tuple[str, str, str]
) -> Row:
    return _row(_ask_devices(session, plan, question), rate, "seconds", bound, what)


def _row(
    answers: Sequence[Mapping[str, Any]], rate: str, time_name: str, bound: float, what: tuple[str, str, str]
) -> Row:
    """Make a row of the answers of all devices: the median of their rates, and the largest error of all."""
    wrong = [str(one["error"]) for one in answers if "error" in one]
    if wrong or not answers:
        problem = wrong[0] if wrong else "no device answered"
        return Row(value=None, unit="TFLOP/s", problem=problem, name=what[0], shape=what[1], dtype=what[2])
    said = [one["value"] for one in answers]
    rates = [one[rate] for one in said]
    error = max(one["error"] for one in said)
    right = error <= bound and all(one["finite"] for one in said)
    return Row(
        value=statistics.median(rates),
        unit="TFLOP/s",
        seconds=statistics.median(one[time_name] for one in said),
        slowest=min(rates) if len(rates) > 1 else None,
        error=error,
        problem="" if right else f"the result is off by {error:.2g}, more than {bound:.2g}",
        name=what[0],
        shape=what[1],
        dtype=what[2],
    )


def _with(row: Row, *, count: int, peak: float | None) -> Row:
    return replace(row, count=count, peak=peak)
