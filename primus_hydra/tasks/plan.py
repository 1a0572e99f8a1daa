"""`task=plan`: what `task=train` would do, to the last argument and variable, with where every value came from.

The plan is the object that training executes, made by the same function. Nothing is written, locked, prepared or
started. What a machine lacks is a note; what the user must mend is an error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.errors import ExitCode, Problem, UserError, raise_all
from primus_hydra.tasks.contract import Task
from primus_hydra.ui.output import print_json
from primus_hydra.ui.plan_markdown import plan_markdown
from primus_hydra.ui.plan_text import plan_text

if TYPE_CHECKING:
    from primus_hydra.tasks.plan_view import Planned
    from primus_hydra.ui.plan_view import PlanView


class Plan(Task):
    """Print the plan of the composed job, or of every point of a sweep."""

    name: ClassVar[str] = "plan"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=plan`."""

        show: str = key(
            "changed", "Values to list: changed (from the schema's defaults), all, or those of a key or node."
        )
        format: Literal["text", "json", "markdown"] = key("text", "Text to read, JSON for programs, Markdown to paste.")
        search: bool = key(False, "Look at every layout of the ranks, batch size and recomputation; print the fastest.")
        top: int = key(10, "Layouts that a search prints.", gt=0)
        output: str | None = key(
            None, "Folder for pictures, a page with them, and all that a search found; null: none."
        )

    options: Options

    def run(self, composed: Composed) -> int:
        """Print one plan; raises UserError after it if the run may not go on."""
        from primus_hydra.tasks.plan_view import plan_job  # only here: completion loads this class for its options

        if self.options.search:
            return self._search(composed)
        return self._print([plan_job(composed)], one=True)

    def _search(self, composed: Composed) -> int:
        from primus_hydra.tasks.plan_output import write_search
        from primus_hydra.tasks.plan_search import search_layouts, search_rows, search_text

        report = search_layouts(composed, most=self.options.top)
        if self.options.output is not None:
            write_search(Path(self.options.output), search_rows(report))
        if self.options.format == "json":
            print_json(search_rows(report)[: self.options.top])
        else:
            print(search_text(report, composed.overrides), end="")
        return int(ExitCode.DONE)

    def run_points(self, points: Sequence[Composed]) -> int:
        """Print the plan of every point; in JSON they are one list."""
        from primus_hydra.tasks.plan_view import plan_job

        plans, problems = [], []
        for point in points:
            try:
                plans.append(plan_job(point))
            except UserError as error:
                problems += [_labelled(problem, point) for problem in error.problems]
        raise_all(problems)
        return self._print(plans, one=False)

    def _print(self, plans: Sequence[Planned], *, one: bool) -> int:
        from primus_hydra.tasks.plan_view import view_of

        views = [view_of(plan, self.options.show) for plan in plans]
        if self.options.output is not None:
            self._write(Path(self.options.output), plans, views)
        if self.options.format == "json":
            data = [asdict(view) for view in views]
            print(json.dumps(data[0] if one else data, indent=2, ensure_ascii=False))
        else:
            print("\n".join(_PAGE[self.options.format](view) for view in views), end="")
        raise_all([_labelled(problem, plan.composed) for plan in plans for problem in plan.standing.problems])
        return int(ExitCode.DONE)

    def _write(self, folder: Path, plans: Sequence[Planned], views: Sequence[PlanView]) -> None:
        from primus_hydra.tasks.plan_output import write_plan

        for plan, view in zip(plans, views, strict=True):
            place = folder / view.run.name if len(plans) > 1 else folder
            write_plan(place, plan.composed.job, plan.launch.spec.layout, view)


_PAGE = {"text": plan_text, "markdown": plan_markdown}


def _labelled(problem: Problem, composed: Composed) -> Problem:
    if not composed.swept:
        return problem
    return dataclasses.replace(problem, what=f"{problem.what} (point {', '.join(composed.swept)})")
