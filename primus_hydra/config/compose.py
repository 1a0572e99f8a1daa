"""Compose the configuration once: groups, experiment and overrides to one resolved tree, with every problem found.

Hydra composes plain YAML on top of the schema's defaults; this module feeds it, reads what it says, and lets the
schema judge the result. Nothing here writes a file or imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from primus_hydra.config.build import build_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.detected import expand_auto
from primus_hydra.config.experiment_file import take_experiment_file
from primus_hydra.config.groups import Groups
from primus_hydra.config.loader import new_loader
from primus_hydra.config.overrides import Override, read_overrides
from primus_hydra.config.provenance import Source, trace
from primus_hydra.config.resolve import leaves_of, resolve
from primus_hydra.config.search import CONFIG_NAME, user_dirs
from primus_hydra.errors import Problem, UserError


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for: overrides as typed, and where to look for more groups."""

    overrides: Sequence[str]
    config_dirs: Sequence[Path] = field(default_factory=tuple)
    config_name: str = CONFIG_NAME
    multirun: bool = False
    swept: Sequence[str] = ()


def compose(request: Request) -> Composed:
    """Compose, resolve and validate; raises UserError with all problems of the call."""
    with user_dirs(request.config_dirs):
        return _Composition(request).run()


def spell_for_hydra(request: Request) -> list[str]:
    """Return the overrides as Hydra should read them, `platform=auto` expanded; raises UserError with all problems."""
    with user_dirs(request.config_dirs):
        return _Composition(request).spelled()


class _Composition:
    """One call of `compose`: the loader, and the problems gathered on the way."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.problems: list[Problem] = _folder_problems(request.config_dirs)
        self.typed, self.experiment = take_experiment_file(request.overrides)  # before the loader copies the store
        self.problems += self.experiment.problems
        self.loader = new_loader()
        self.notes: tuple[str, ...] = ()
        self.detected: tuple[str, ...] = ()

    def spelled(self) -> list[str]:
        overrides = self._read()
        if self.problems:
            raise UserError(*self.problems)
        spelled = [override.for_hydra for override in overrides]
        return (
            spelled if self.request.multirun else expand_auto(self.loader, self.request.config_name, spelled).overrides
        )

    def _read(self) -> list[Override]:
        groups = Groups(self.loader.repository)
        overrides, wrong = read_overrides(self.typed, groups, multirun=self.request.multirun)
        self.problems += wrong
        return overrides

    def run(self) -> Composed:
        overrides = self._read()
        config = self._load([override.for_hydra for override in overrides])
        tree, unresolved = resolve(config)
        job, invalid = build_job(tree)
        sources = self._sources(tree, overrides)
        self.problems += [_placed(problem, sources) for problem in (*unresolved, *_new(invalid, unresolved))]
        if job is None or self.problems:
            raise UserError(*self.problems)
        return Composed(
            job=job,
            tree=tree,
            choices=_choices(config),
            overrides=list(self.request.overrides),
            swept=tuple(self.request.swept),
            provenance=dict(sources),
            notes=self.notes,
        )

    def _load(self, overrides: list[str]) -> DictConfig:
        name = self.request.config_name
        try:
            expanded = expand_auto(self.loader, name, overrides)
            self.notes, self.detected = expanded.notes, expanded.keys
            return self.loader.load(name, expanded.overrides)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError, RecursionError) as error:
            raise UserError(*self.problems, _composition_problem(error)) from None

    def _sources(self, tree: Mapping[str, Any], overrides: list[Override]) -> dict[str, Source]:
        typed_keys = {override.key for override in overrides if not override.is_group}
        found = trace(leaves_of(tree), self.loader.composed_from, self.loader.repository, overrides)
        found.update(
            {
                leaf: source
                for leaf, source in self.experiment.sources.items()
                if leaf in found and leaf not in typed_keys
            }
        )
        machine = Source(kind="detected", text="found on this machine")
        found.update({key: machine for key in self.detected if key not in typed_keys})
        return found


def _choices(config: DictConfig) -> dict[str, str]:
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    assert isinstance(choices, dict)
    return {str(group): str(option) for group, option in choices.items() if not str(group).startswith("hydra/")}


def _new(invalid: list[Problem], unresolved: list[Problem]) -> list[Problem]:
    """Drop complaints about values that are missing only because they could not be resolved."""
    known = {problem.key for problem in unresolved}
    return [problem for problem in invalid if problem.key not in known]


def _placed(problem: Problem, sources: Mapping[str, Source]) -> Problem:
    if problem.where is not None or problem.key is None:
        return problem
    source = sources.get(problem.key)
    place = None if source is None else (f"{source.file}:{source.line}" if source.file else source.text)
    return Problem(key=problem.key, what=problem.what, where=place, hint=problem.hint)


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


def _composition_problem(error: Exception) -> Problem:
    if isinstance(error, RecursionError):
        return Problem(what="the defaults lists form a circle: a file includes itself through others")
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return Problem(what=f"not valid YAML: {error.problem}", where=f"{mark.name}:{mark.line + 1}")
    cause = error.__cause__
    lines = [line for line in f"{error}\n{cause or ''}".splitlines() if line.strip()]
    return Problem(what=lines[0] if lines else type(error).__name__, hint="; ".join(lines[1:4]) or None)
