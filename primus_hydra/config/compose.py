"""Compose the configuration once: groups, experiment and overrides to one resolved tree, with every problem found.

Hydra composes plain YAML on top of the schema's defaults; this module feeds it, reads what it says, and lets the
schema judge the result. Nothing here writes a file or imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from primus_hydra.config.anchors import anchor_paths
from primus_hydra.config.build import build_job
from primus_hydra.config.composed import Composed, Launcher
from primus_hydra.config.detected import expand_auto
from primus_hydra.config.experiment_file import take_experiment_file
from primus_hydra.config.foundation import Base, Foundations
from primus_hydra.config.hf_model import KEY as HF_PATH
from primus_hydra.config.hydra_errors import Translator, circle_problem
from primus_hydra.config.keys import facts_of
from primus_hydra.config.launchers import LAUNCHER_GROUP, launcher_of
from primus_hydra.config.overrides import Override, read_overrides
from primus_hydra.config.provenance import Source, placed, trace
from primus_hydra.config.resolve import leaves_of, resolve
from primus_hydra.config.search import CONFIG_NAME, user_dirs
from primus_hydra.config.total import with_true_total
from primus_hydra.errors import Problem, UserError


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for: overrides as typed, and where to look for more groups."""

    overrides: Sequence[str]
    config_dirs: Sequence[Path] = field(default_factory=tuple)
    config_name: str = CONFIG_NAME
    multirun: bool = False
    swept: Sequence[str] = ()
    sweep: str | None = None


def compose(request: Request, foundations: Foundations | None = None) -> Composed:
    """Compose, resolve and validate; raises UserError with all problems of the call.

    `foundations` are shared by requests that differ in their overrides only, as the points of a sweep do.
    """
    with user_dirs(request.config_dirs):
        return _Composition(request, foundations).run()


def spell_for_hydra(request: Request) -> list[str]:
    """Return the overrides as Hydra should read them, `platform=auto` expanded; raises UserError with all problems."""
    with user_dirs(request.config_dirs):
        return _Composition(request).spelled()


def loose_tree(request: Request, foundations: Foundations | None = None) -> dict[str, Any]:
    """Return the resolved tree whatever the schema says of it, a value that cannot be resolved as None.

    Raises UserError where nothing can be composed at all.
    """
    with user_dirs(request.config_dirs):
        return _Composition(request, foundations).tree()


def sweeper_of(request: Request, foundations: Foundations | None = None) -> str:
    """Return the sweeper that the defaults list chose, an experiment's too; raises UserError as `loose_tree`."""
    with user_dirs(request.config_dirs):
        return _Composition(request, foundations).sweeper()


class _Composition:
    """One call of `compose`: the loader, and the problems gathered on the way."""

    def __init__(self, request: Request, foundations: Foundations | None = None) -> None:
        self.request = request
        self.problems: list[Problem] = _folder_problems(request.config_dirs)
        self.typed, self.experiment = take_experiment_file(request.overrides)  # before the loader copies the store
        self.problems += self.experiment.problems
        self.foundation = (foundations or Foundations()).of(self.typed)
        self.loader, self.groups = self.foundation.loader, self.foundation.groups
        self.overrides: list[Override] = []

    def spelled(self) -> list[str]:
        overrides = self._read()
        if self.problems:
            raise UserError(*self.problems)
        spelled = [override.for_hydra for override in overrides]
        return (
            spelled if self.request.multirun else expand_auto(self.loader, self.request.config_name, spelled).overrides
        )

    def _read(self) -> list[Override]:
        overrides, wrong = read_overrides(self.typed, self.groups, multirun=self.request.multirun)
        self.problems += wrong
        self.overrides = overrides
        self.loader.know({override.for_hydra: override.parsed for override in overrides})
        return overrides

    def tree(self) -> dict[str, Any]:
        return anchor_paths(resolve(self._unjudged())[0], Path.cwd())

    def sweeper(self) -> str:
        return str(self._unjudged().hydra.runtime.choices.get("hydra/sweeper"))

    def _unjudged(self) -> DictConfig:
        overrides = self._read()
        if self.problems:
            raise UserError(*self.problems)
        return self._load(overrides)[1]

    def run(self) -> Composed:
        overrides = self._read()
        base, config = self._load(overrides)
        tree, unresolved = resolve(config)
        tree = anchor_paths(tree, Path.cwd())
        job, invalid = build_job(tree)
        sources = self._sources(tree, base, overrides)
        if job is not None:
            totalled = with_true_total(job, tree, sources)
            job, tree, invalid = totalled.job, totalled.tree, totalled.problems
        launcher = self._launcher(config)
        self.problems += self._judged([*unresolved, *_new(invalid, unresolved)], sources)
        if job is None or self.problems:
            raise UserError(*self.problems)
        return Composed(
            job=job,
            tree=tree,
            choices=_choices(config),
            overrides=list(self.request.overrides),
            swept=tuple(self.request.swept),
            sweep=self.request.sweep,
            provenance=dict(sources),
            notes=base.expanded.notes,
            launcher=launcher,
            platform_detected=base.expanded.detected,
        )

    def _launcher(self, config: DictConfig) -> Launcher:
        chosen = launcher_of(config.hydra.runtime.choices.get(LAUNCHER_GROUP))
        if isinstance(chosen, Problem):
            self.problems.append(chosen)
            return "basic"
        return chosen

    def _load(self, overrides: list[Override]) -> tuple[Base, DictConfig]:
        try:
            base = self.foundation.base(self.request.config_name, overrides)
            return base, self.foundation.config(base, overrides)
        except RecursionError:
            raise UserError(*self.problems, *self._broken(), circle_problem(self.loader.book)) from None
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            problem = Translator(self.groups, self.loader.book).problem(error)
            typed = {override.key: Source(kind="override", text=override.where) for override in self.overrides}
            raise UserError(*self.problems, *self._broken(), placed(problem, typed)) from None

    def _broken(self) -> list[Problem]:
        return [problem for problems in self.loader.book.problems.values() for problem in problems]

    def _judged(self, problems: list[Problem], sources: Mapping[str, Source]) -> list[Problem]:
        """Place the problems; beside a refused choice or a broken file, drop those that follow from it."""
        found = [placed(self._unpackaged(problem), sources) for problem in problems]
        if not self.problems and not self.loader.book.problems:
            return found
        files = {str(file) for file in self.loader.book.problems}
        return [*self._broken(), *(problem for problem in found if problem.where not in (None, *files))]

    def _unpackaged(self, problem: Problem) -> Problem:
        """Say what is wrong where a group's file was taken for keys of the group, but the group has none."""
        if problem.key is None or facts_of(problem.key).kind == "node" or not self.groups.has(problem.key):
            return problem
        files = [default.config_path for default in self.loader.composed_from if default.package == problem.key]
        if not files:
            return problem
        where = Translator(self.groups, self.loader.book).file(str(files[-1]))
        what = f"a file of this group sets keys from the top, and there are none below {problem.key}"
        return Problem(key=problem.key, what=what, where=where, hint="make `# @package _global_` its first line")

    def _sources(self, tree: Mapping[str, Any], base: Base, overrides: list[Override]) -> dict[str, Source]:
        typed_keys = {override.key for override in overrides if not override.is_group}
        found = trace(leaves_of(tree), base.files, overrides)
        found.update(
            {
                leaf: source
                for leaf, source in self.experiment.sources.items()
                if leaf in found and leaf not in typed_keys
            }
        )
        machine = Source(kind="detected", text="found on this machine")
        found.update({key: machine for key in base.expanded.keys if key not in typed_keys})
        return found


def _choices(config: DictConfig) -> dict[str, str]:
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    assert isinstance(choices, dict)
    return {str(group): str(option) for group, option in choices.items() if not str(group).startswith("hydra/")}


def _new(invalid: list[Problem], unresolved: list[Problem]) -> list[Problem]:
    """Drop complaints about values that are missing only because they could not be resolved."""
    known = {problem.key for problem in unresolved}
    from_file = "model." if HF_PATH in known else None
    return [
        problem
        for problem in invalid
        if problem.key not in known and not (from_file and (problem.key or "").startswith(from_file))
    ]


def _folder_problems(folders: Sequence[Path]) -> list[Problem]:
    return [
        Problem(
            key="--config-dir",
            what=f"there is no folder {folder}",
            hint="give a folder that holds model/, experiment/, ...",
        )
        for folder in folders
        if not folder.is_dir()
    ]
