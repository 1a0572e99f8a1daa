"""`task=plan`: what `task=train` would do, to the last argument and variable, with where every value came from.

The plan is the object that training executes, made by the same function. Nothing is written, locked, prepared or
started. What a machine lacks is a note; what the user must mend is an error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.errors import ExitCode, Problem, UserError, raise_all
from primus_hydra.tasks.contract import Task
from primus_hydra.ui.plan_markdown import plan_markdown
from primus_hydra.ui.plan_text import plan_text

if TYPE_CHECKING:
    from primus_hydra.tasks.plan_view import Planned


class Plan(Task):
    """Print the plan of the composed job, or of every point of a sweep."""

    name: ClassVar[str] = "plan"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=plan`."""

        show: str = key(
            "changed", "Values to list: changed (from the schema's defaults), all, or those of a key or node."
        )
        format: Literal["text", "json", "markdown"] = key("text", "Text to read, JSON for programs, Markdown to paste.")

    options: Options

    def run(self, composed: Composed) -> int:
        """Print one plan; raises UserError after it if the run may not go on."""
        from primus_hydra.tasks.plan_view import plan_job  # only here: completion loads this class for its options

        return self._print([plan_job(composed)], one=True)

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
        if self.options.format == "json":
            data = [asdict(view) for view in views]
            print(json.dumps(data[0] if one else data, indent=2, ensure_ascii=False))
        else:
            print("\n".join(_PAGE[self.options.format](view) for view in views), end="")
        raise_all([_labelled(problem, plan.composed) for plan in plans for problem in plan.standing.problems])
        return int(ExitCode.DONE)


_PAGE = {"text": plan_text, "markdown": plan_markdown}


def _labelled(problem: Problem, composed: Composed) -> Problem:
    if not composed.swept:
        return problem
    return dataclasses.replace(problem, what=f"{problem.what} (point {', '.join(composed.swept)})")
