"""`task=migrate`: turn a recipe of Primus, Megatron or torchtitan into an experiment file, and account for every key.

The file goes to standard output, or to `task.output`, which is never overwritten unasked. The result is composed and
planned as `task=plan` would: what that refuses is told, and ends the command with exit 2 after the file is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.errors import ExitCode, raise_all
from primus_hydra.tasks.contract import Task

Source = Literal["auto", "primus", "runner", "megatron", "torchtitan"]


class Migrate(Task):
    """Write the experiment file of a recipe, and say what became of each of its keys."""

    name: ClassVar[str] = "migrate"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=migrate`."""

        path: str | None = key(
            None,
            "Recipe: an experiment or runner file of Primus (.yaml), a script or list of Megatron's arguments, a "
            "torchtitan file (.toml, .py); null: only task.arguments.",
        )
        source: Source = key("auto", "What the recipe is written for; auto looks at the file.")
        presets: str | None = key(None, "Primus: the folder of its presets, which holds modules/ and models/.")
        arguments: str | list[str] = key(
            [], "Command line that goes with the recipe, as text or list of words: --train_iters 10 or train_iters=10."
        )
        runner: str | None = key(None, "Primus: the runner file (.primus.yaml) that goes with the experiment.")
        function: str | None = key(None, "torchtitan: the function of a .py file; null where there is only one.")
        backend: str | None = key(None, "Backend to migrate to; null: megatron, or torchtitan for its own recipes.")
        output: str | None = key(None, "File to write the experiment to; null: standard output.")
        overwrite: bool = key(False, "Write over a file that is there.")
        format: Literal["text", "json", "markdown"] = key(
            "text", "Report as text (beside the file on standard output, on standard error), JSON or Markdown."
        )

    options: Options

    def run(self, composed: Composed) -> int:
        """Migrate one recipe; raises UserError for what cannot be read, and after the report for a refused result."""
        from primus_hydra.tasks.migrate_recipe import migrate_recipe  # only here: completion loads this class

        report = migrate_recipe(self.options, composed)
        self._print(report)
        raise_all(report.refused)
        return int(ExitCode.DONE)

    def run_points(self, points: Sequence[Composed]) -> int:
        """Do it once: a recipe is one experiment, whatever is swept."""
        return self.run(points[0]) if points else int(ExitCode.DONE)

    def _print(self, report: object) -> None:
        from primus_hydra.tasks.migrate_recipe import print_report

        print_report(report, self.options.format)
