"""`task=runs`: the runs below `run.dir`; with `task.run`, one of them: look, read, follow, stop, go on, compare.

Of a sweep it shows the table. Only `task.action=resume` starts something, and only `stop` changes a process; the others
write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.errors import ExitCode, Problem, UserError
from primus_hydra.tasks.contract import Task

Action = Literal["status", "logs", "follow", "stop", "resume", "diff"]
_NAME_IT = "name it: task.{}=NAME; task=runs lists the names"


class Runs(Task):
    """List runs, or do something with one."""

    name: ClassVar[str] = "runs"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=runs`."""

        run: str | None = key(
            None, "The run, or the sweep: its name, the beginning of its name, or its path; null lists all runs."
        )
        action: Action = key("status", "What to do with the run; resume goes on with it, diff compares it with other.")
        other: str | None = key(None, "The run to compare with, named like run.")
        lines: int = key(40, "Lines of each log that logs shows.", gt=0)
        rank: int | None = key(None, "The rank whose log is shown; null shows those of all ranks.", ge=0)
        format: Literal["text", "json"] = key("text", "Text to read, or JSON for programs.")

    options: Options

    def run(self, composed: Composed) -> int:
        """Do what is asked for; raises UserError for a run that is not there, with the nearest names."""
        base = Path(composed.job.run.dir).expanduser().absolute()
        if not self.options.run:
            return self._list(base)
        # Only here: completion loads this class for its options.
        from primus_hydra.run.listing import find_run, find_sweep, name_of

        sweep = find_sweep(base, self.options.run)
        if sweep is not None:
            return self._show_sweep(name_of(sweep, base), sweep)
        root = find_run(base, self.options.run)
        return self._act(base, name_of(root, base), root)

    def run_points(self, points: Sequence[Composed]) -> int:
        """Do it once: no value of a sweep changes which runs there are."""
        return self.run(points[0]) if points else int(ExitCode.DONE)

    def _list(self, base: Path) -> int:
        if self.options.action != "status":
            what = f"task.action={self.options.action} needs a run"
            raise UserError(Problem(key="task.run", what=what, hint=_NAME_IT.format("run")))
        from primus_hydra.tasks.runs_status import show_list

        return show_list(base, as_json=self._as_json)

    def _act(self, base: Path, name: str, root: Path) -> int:
        match self.options.action:
            case "status" | "logs" | "diff":
                return self._show(base, name, root)
            case "follow":
                from primus_hydra.tasks.runs_follow import follow_run

                return follow_run(name, root, as_json=self._as_json)
            case "stop":
                from primus_hydra.tasks.runs_stop import stop_run

                return stop_run(name, root, as_json=self._as_json)
            case "resume":
                from primus_hydra.tasks.runs_resume import resume_run

                return resume_run(name, root)

    def _show_sweep(self, name: str, root: Path) -> int:
        if self.options.action != "status":
            what = f"task.action={self.options.action} is for one run, and {name} is a sweep"
            raise UserError(Problem(key="task.action", what=what, hint=f"name a point: task.run={name}/POINT"))
        from primus_hydra.tasks.runs_sweep import show_sweep

        return show_sweep(root, as_json=self._as_json)

    def _show(self, base: Path, name: str, root: Path) -> int:
        from primus_hydra.tasks.runs_status import show_logs, show_status

        if self.options.action == "diff":
            return self._diff(base, name, root)
        if self.options.action == "status":
            return show_status(name, root, as_json=self._as_json)
        return show_logs(name, root, lines=self.options.lines, rank=self.options.rank, as_json=self._as_json)

    def _diff(self, base: Path, name: str, root: Path) -> int:
        if not self.options.other:
            what = "task.action=diff needs a second run"
            raise UserError(Problem(key="task.other", what=what, hint=_NAME_IT.format("other")))
        from primus_hydra.run.listing import find_run, name_of
        from primus_hydra.tasks.runs_status import show_difference

        other = find_run(base, self.options.other, key="task.other")
        return show_difference((name, root), (name_of(other, base), other), as_json=self._as_json)

    @property
    def _as_json(self) -> bool:
        return self.options.format == "json"
