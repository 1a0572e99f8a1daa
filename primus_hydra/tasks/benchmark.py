"""`task=benchmark`: the parts of a training step measured alone, in the shapes of the composed model.

Results are JSON, Markdown and a picture in a folder of their own; a sweep's points come into one. Exit 3 if something
could not be measured or gave a wrong result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import JobConfig, key
from primus_hydra.errors import ExitCode, Problem, raise_all
from primus_hydra.tasks.contract import make_task
from primus_hydra.tasks.measuring import MeasuringTask

if TYPE_CHECKING:
    from primus_hydra.benchmark.result import Result
    from primus_hydra.benchmark.suites import Plan
    from primus_hydra.measure.hands import Act
    from primus_hydra.measure.session import Session

_DTYPES = ("float32", "tf32", "bfloat16", "float16", "fp8")
_SIZES_GPU = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
_SIZES_CPU = (0.25, 1.0, 4.0)


class Benchmark(MeasuringTask):
    """Measure one part of a training step."""

    name: ClassVar[str] = "benchmark"
    sweeps_options: ClassVar[bool] = True

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=benchmark`."""

        suite: Literal["gemm", "attention", "collectives", "dataloader", "checkpoint"] = key(
            "gemm", "What is measured, in the shapes of the composed model."
        )
        dtypes: list[str] = key([], "Number formats (float32, tf32, bfloat16, float16, fp8); none: those of the job.")
        tokens: int | None = key(
            None, "Rows of the products, or length of the attention; null: one microbatch of a rank.", gt=0
        )
        backward: bool = key(False, "Measure the backward pass too.")
        seconds: float = key(0.5, "How long each product is repeated.", unit="s", gt=0)
        ops: list[str] = key([], "Collectives to measure; none: all of them.")
        sizes_mib: list[float] = key([], "Buffers of the collectives; none: a range.", unit="MiB")
        calls: int = key(10, "How often each collective is called.", gt=0, le=50)
        state_mib: int = key(256, "Size of the checkpoint.", unit="MiB", gt=0)
        join_s: float = key(120.0, "How long the first node waits for the others.", unit="s", gt=0)
        start_s: float = key(180.0, "How long a device's process may take to load its libraries.", unit="s", gt=0)
        limit_s: float = key(300.0, "How long one measurement may take.", unit="s", gt=0)
        dir: str = key("benchmark", "Folder that gets a folder with the results.")
        format: Literal["text", "json", "markdown"] = key("text", "What is printed; the folder has all of them.")

    options: Options

    def problems(self, job: JobConfig) -> list[Problem]:
        """Return what is wrong with the names, and shapes that tensor parallelism does not cut evenly."""
        from primus_hydra.benchmark.shapes import shape_problems
        from primus_hydra.benchmark.suites import OPS

        found = [*_unknown("task.dtypes", self.options.dtypes, _DTYPES), *_unknown("task.ops", self.options.ops, OPS)]
        if self.options.suite in ("gemm", "attention"):
            found += shape_problems(job)
        return found

    def folder_name(self, job: JobConfig) -> str:
        """Return suite and model."""
        return f"{self.options.suite}-{job.model.name}"

    def place(self) -> str:
        """Return the folder of all results."""
        return self.options.dir

    def join_s(self) -> float:
        """Return how long nodes wait for each other."""
        return self.options.join_s

    def life_s(self, job: JobConfig) -> float:
        """Return the longest time of a benchmark: some products, each with its limit, seldom take it."""
        return self.options.join_s + self.options.start_s + 10 * self.options.limit_s

    def devices(self, job: JobConfig) -> int:
        """Return how many devices are used: on a CPU one, which gets all cores, but for collectives."""
        if job.platform.is_cpu and self.options.suite != "collectives":
            return job.launch.ranks_per_node or 1
        return super().devices(job)

    def acts(self, job: JobConfig, folder: Path) -> Mapping[str, Act]:
        """Return nothing: devices are all that is asked."""
        return {}

    def run_in(self, composed: Composed, folder: Path, *, quiet: bool = False) -> int:
        """Measure into a folder; `quiet` prints no table, as a point of a sweep."""
        self._quiet = quiet
        return super().run_in(composed, folder)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._quiet = False

    def lead(self, session: Session, job: JobConfig, folder: Path) -> int:
        """Measure and write the results."""
        from primus_hydra.benchmark.plot import plot_result
        from primus_hydra.benchmark.result import Point, Result, write_result
        from primus_hydra.benchmark.suites import measure_suite

        session.join(self.options.join_s)
        rows, notes = measure_suite(self.options.suite, session, job, self._plan(job), _say)
        found = Result(
            suite=self.options.suite,
            model=job.model.name,
            platform=job.platform.name,
            setting=self._setting(job),
            points=(Point(swept=(), rows=tuple(rows)),),
            notes=tuple(notes),
        )
        plot_result(found, folder)
        write_result(found, folder)
        return self._show(found, folder)

    def show(self, folder: Path) -> int | None:
        """Print the results of a folder."""
        from primus_hydra.benchmark.result import RESULT, read_result

        found = read_result(folder / RESULT)
        return None if found is None else self._show(found, folder)

    def run_points(self, points: Sequence[Composed]) -> int:
        """Measure every point, and put all results into one table; a point that cannot be measured stops no other."""
        from primus_hydra.benchmark.plot import plot_result
        from primus_hydra.benchmark.result import RESULT, joined, read_result, write_result

        if len(points) == 1:
            return self.run(points[0])
        folder, results, code = self.new_folder(points[0].job), [], int(ExitCode.DONE)
        tasks = [_task(point) for point in points]  # a wrong one starts nothing
        raise_all([problem for task, point in zip(tasks, points, strict=True) for problem in task.problems(point.job)])
        for number, (task, point) in enumerate(zip(tasks, points, strict=True)):
            _say(f"point {', '.join(point.swept)}")
            code = max(code, task.run_in(point, folder / f"point-{number}", quiet=True))
            found = read_result(folder / f"point-{number}" / RESULT)
            if found is not None:
                only = replace(found.points[0], swept=tuple(point.swept))
                results.append(replace(found, points=(only,)))
        if results:
            whole = joined(results)
            plot_result(whole, folder)
            write_result(whole, folder)
            self._show(whole, folder)
        return code

    def _plan(self, job: JobConfig) -> Plan:
        from primus_hydra.benchmark.suites import OPS, Plan

        options = self.options
        own = [job.precision.compute, *(["fp8"] if job.precision.fp8 else [])]
        return Plan(
            devices=self.devices(job),
            dtypes=tuple(options.dtypes or own),
            tokens=options.tokens,
            backward=options.backward,
            seconds=options.seconds,
            ops=tuple(options.ops) or OPS,
            sizes_mib=tuple(options.sizes_mib) or (_SIZES_CPU if job.platform.is_cpu else _SIZES_GPU),
            calls=options.calls,
            state_mib=options.state_mib,
            limit_s=options.limit_s,
            start_s=options.start_s,
        )

    def _setting(self, job: JobConfig) -> dict[str, Any]:
        setting: dict[str, Any] = {"nodes": job.launch.nodes, "devices per node": self.devices(job)}
        if self.options.suite in ("gemm", "attention"):
            setting |= {"tp": job.parallel.tp, "micro batch": job.training.micro_batch_size}
            setting |= {"sequence": job.training.seq_length}
        return setting

    def _show(self, found: Result, folder: Path) -> int:
        from primus_hydra.benchmark.result import markdown_lines, text_lines

        if self._quiet:
            return int(ExitCode.HOST if found.failed else ExitCode.DONE)
        if self.options.format == "json":
            print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        else:
            lines = markdown_lines if self.options.format == "markdown" else text_lines
            print("\n".join(lines(found)))
            print(f"results: {folder}", flush=True)
        return int(ExitCode.HOST if found.failed else ExitCode.DONE)


def _task(point: Composed) -> Benchmark:
    task = make_task(point.job.task)
    assert isinstance(task, Benchmark)
    return task


def _unknown(name: str, given: Sequence[str], known: Sequence[str]) -> list[Problem]:
    return [
        Problem(key=name, what=f"there is no {one!r}", hint=f"one of {', '.join(known)}")
        for one in given
        if one not in known
    ]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
