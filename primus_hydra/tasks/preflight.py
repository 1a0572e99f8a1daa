"""`task=preflight`: whether the nodes are fit for the job, before it waits for them.

Facts and tests of host, devices and network, on this machine or over Slurm's nodes; a verdict for each node with its
reason, and lists of nodes that Slurm takes. Exit 3 if a node did not pass.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from primus_hydra.config.schema import JobConfig, key
from primus_hydra.errors import ExitCode, Problem
from primus_hydra.tasks.measuring import MeasuringTask

if TYPE_CHECKING:
    from primus_hydra.measure.hands import Act
    from primus_hydra.measure.session import Session
    from primus_hydra.preflight.finding import NodeReport
    from primus_hydra.preflight.report import Preflight as Report
    from primus_hydra.preflight.wanted import Wanted


class Preflight(MeasuringTask):
    """Test nodes and give each a verdict."""

    name: ClassVar[str] = "preflight"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=preflight`."""

        suite: Literal["info", "smoke", "quick", "full"] = key(
            "quick", "info: facts only; smoke: seconds, is anything broken; quick: rates too; full: every test."
        )
        tests: list[str] = key([], "Tests to make instead of the suite's.")
        skip: list[str] = key([], "Tests to leave out.")
        sizes_mib: list[float] = key([], "Buffers of the collectives; none: the suite's.", unit="MiB")
        join_s: float = key(120.0, "How long the first node waits for the others.", unit="s", gt=0)
        start_s: float = key(180.0, "How long a device's process may take to load its libraries.", unit="s", gt=0)
        limit_s: float = key(
            60.0, "How long any other step may take; a node that takes longer is left out.", unit="s", gt=0
        )
        dir: str = key("preflight", "Folder that gets a folder with the report.")
        format: Literal["text", "json", "markdown"] = key("text", "What is printed; the folder has all of them.")

    options: Options

    def problems(self, job: JobConfig) -> list[Problem]:
        """Return what is wrong with names and sizes."""
        from primus_hydra.preflight.names import chosen_tests

        _, found = chosen_tests(self.options.suite, self.options.tests, self.options.skip)
        wrong = [size for size in self.options.sizes_mib if size <= 0]
        return [*found, *(Problem(key="task.sizes_mib", what=f"{size:g} is no size of a buffer") for size in wrong)]

    def folder_name(self, job: JobConfig) -> str:
        """Return the suite."""
        return self.options.suite

    def place(self) -> str:
        """Return the folder of all reports."""
        return self.options.dir

    def join_s(self) -> float:
        """Return how long nodes wait for each other."""
        return self.options.join_s

    def life_s(self, job: JobConfig) -> float:
        """Return the longest time of a preflight."""
        return self._wanted(job).life_s

    def acts(self, job: JobConfig, folder: Path) -> Mapping[str, Act]:
        """Return the look of a node at itself."""
        from primus_hydra.preflight.node_stage import examine_node

        wanted, runs = self._wanted(job), Path(job.run.dir).expanduser()

        def host(_: Mapping[str, object]) -> dict[str, object]:
            return examine_node(job, wanted.tests, devices=wanted.devices, folder=runs, limit_s=wanted.limit_s)

        return {"host": host}

    def lead(self, session: Session, job: JobConfig, folder: Path) -> int:
        """Conduct the preflight and write its report."""
        from primus_hydra.preflight.lead import conduct
        from primus_hydra.preflight.report import PROGRESS, write_report
        from primus_hydra.run.atomic import write_json

        began, wanted = time.monotonic(), self._wanted(job)

        def note(nodes: list[NodeReport], remarks: list[str]) -> None:
            write_json(folder / PROGRESS, self._report(job, nodes, remarks, time.monotonic() - began).to_json())

        nodes, remarks = conduct(session, job, wanted, say=_say, note=note)
        found = self._report(job, nodes, remarks, time.monotonic() - began)
        write_report(found, folder)
        (folder / PROGRESS).unlink(missing_ok=True)
        return self._show(found, folder)

    def show(self, folder: Path) -> int | None:
        """Print the report of a folder."""
        from primus_hydra.preflight.report import REPORT, read_preflight

        found = read_preflight(folder / REPORT)
        return None if found is None else self._show(found, folder)

    def left_alone(self, job: JobConfig, folder: Path, host: str) -> None:
        """Look at this node alone, and leave word."""
        from primus_hydra.preflight.finding import NodeReport, read_findings
        from primus_hydra.preflight.salvage import note_alone

        seen = self.acts(job, folder)["host"]({})
        note_alone(folder, NodeReport(host=host, facts=seen["facts"], findings=read_findings(seen["findings"])))

    def salvage(self, job: JobConfig, folder: Path, hosts: Sequence[str], why: str, hung: str | None) -> int:
        """Report on what is known of the nodes."""
        from primus_hydra.preflight.report import write_report
        from primus_hydra.preflight.salvage import salvage

        if not hosts:
            return super().salvage(job, folder, hosts, why, hung)
        found = salvage(folder, hosts, self._report(job, [], [], 0.0), why, hung)
        write_report(found, folder)
        return self._show(found, folder)

    def _wanted(self, job: JobConfig) -> Wanted:
        from primus_hydra.preflight.names import chosen_tests
        from primus_hydra.preflight.wanted import Wanted, default_sizes, device_count

        tests, _ = chosen_tests(self.options.suite, self.options.tests, self.options.skip)
        return Wanted(
            suite=self.options.suite,
            tests=tests,
            devices=device_count(job),
            sizes_mib=tuple(self.options.sizes_mib) or default_sizes(job, self.options.suite),
            join_s=self.options.join_s,
            limit_s=self.options.limit_s,
            start_s=self.options.start_s,
        )

    def _report(self, job: JobConfig, nodes: Sequence[NodeReport], remarks: Sequence[str], seconds: float) -> Report:
        from primus_hydra.preflight.report import Preflight as Report

        return Report(
            suite=self.options.suite,
            tests=self._wanted(job).tests,
            platform=job.platform.name,
            nodes=tuple(nodes),
            remarks=tuple(remarks),
            seconds=seconds,
        )

    def _show(self, found: Report, folder: Path) -> int:
        from primus_hydra.preflight.report import facts_lines, markdown_lines, text_lines

        if self.options.format == "json":
            print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        elif self.options.format == "markdown":
            print("\n".join(markdown_lines(found)))
        else:
            print("\n".join([*(facts_lines(found) if found.suite == "info" else ()), *text_lines(found)]))
            print(f"report: {folder}", flush=True)
        return int(ExitCode.DONE if found.passed else ExitCode.HOST)


def _say(text: str) -> None:
    import sys

    print(text, file=sys.stderr, flush=True)
