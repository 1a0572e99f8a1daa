"""The command: overrides in, an exit code out. One `@hydra.main` app behind our own front end.

The front end composes once, so that all mistakes are known before anything starts. What Hydra serves itself (`--cfg`,
`--info`, `--hydra-help`) goes to Hydra, on the same groups and with the same overrides. Refuses flags of Hydra that
would go round this front end.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from primus_hydra.answers import PROGRAM, quick_answer
from primus_hydra.config.compose import Request, compose, spell_for_hydra
from primus_hydra.config.composed import Composed
from primus_hydra.config.keys import all_keys
from primus_hydra.config.loader import register_schema
from primus_hydra.config.points import BASIC, Points
from primus_hydra.config.provenance import Source, placed
from primus_hydra.config.search import CONFIG_MODULE, CONFIG_NAME, HYDRA_VERSION_BASE, user_dirs
from primus_hydra.config.suggest import key_hint
from primus_hydra.config.sweep import SkippedPoint, sweep_layouts
from primus_hydra.errors import ExitCode, PrimusError, Problem, UserError, raise_all
from primus_hydra.guard import guarded
from primus_hydra.launch.outer import OuterLaunch, Publication, follow, outer_launch
from primus_hydra.tasks.contract import Task, go_together, make_task, refuse_launcher

REFUSED_FLAGS = (
    (
        "--shell-completion",
        "Hydra's completion does not know keys",
        f'use eval "$({PROGRAM} --completion bash)", or zsh',
    ),
    ("--config-path", "the groups of this project have one place", "add a folder of your own with --config-dir"),
    ("--experimental-rerun", "there are no pickled jobs", "the same command is the same run: type it again"),
)
"""Flags of Hydra that are refused: name, why, and what to do instead."""


def run_command(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are shown, never raised."""
    return guarded(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    answered = quick_answer(argv)
    if answered is not None:
        return answered
    flags = parse_flags(argv)
    request = Request(
        overrides=list(flags.overrides),
        config_dirs=[Path(flags.config_dir)] if flags.config_dir else [],
        config_name=flags.config_name or CONFIG_NAME,
        multirun=flags.multirun,
    )
    if flags.cfg == "job" and not flags.multirun:
        return _show_job(compose(request), flags.package)
    if _is_for_hydra(flags):
        return _hand_to_hydra(argv, flags, request)
    outer = outer_launch(os.environ)
    if outer is not None:
        return _run_joined(request, outer)
    with user_dirs(request.config_dirs):
        return _run_sweep(request) if flags.multirun else run_composed(compose(request))


def parse_flags(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line with Hydra's parser; unlike Hydra, flags and overrides may come in any order.

    Raises UserError for a flag that is unknown, lacks its value or is refused.
    """
    parser = get_args_parser()
    parser.prog = PROGRAM
    parser.error = _refuse_flags  # type: ignore[method-assign]
    flags = parser.parse_intermixed_args(list(argv))
    raise_all([Problem(key=name, what=what, hint=hint) for name, what, hint in REFUSED_FLAGS if _given(flags, name)])
    return flags


def _refuse_flags(message: str) -> NoReturn:
    flag = re.search(r"unrecognized arguments: --?([\w.-]+)", message)
    known = key_hint(flag[1], all_keys()) if flag else None
    hint = f"settings are KEY=VALUE, without dashes; {known}" if known else f"{PROGRAM} --help shows the flags"
    raise UserError(Problem(what=message, hint=hint))


def _given(flags: argparse.Namespace, name: str) -> bool:
    return bool(getattr(flags, name.removeprefix("--").replace("-", "_")))


def run_composed(composed: Composed) -> int:
    """Run the task of a composed job."""
    gc.enable()  # off since the start of the process, see `__main__`
    with _placing(composed):
        return _task_of(composed).run(composed)


def run_points(points: Sequence[Composed], skipped: Sequence[SkippedPoint] = ()) -> int:
    """Run the points of a sweep; points of one task go to it together, so that it may give one answer."""
    gc.enable()
    if points and go_together([point.job.task for point in points]):
        with _placing(points[0]):
            return _task_of(points[0]).run_sweep(points, skipped)
    return max((run_composed(point) for point in points), default=int(ExitCode.DONE))


def _task_of(composed: Composed) -> Task:
    task = make_task(composed.job.task)
    refuse_launcher(task, composed)
    return task


@contextmanager
def _placing(composed: Composed) -> Iterator[None]:
    """Give the problems that a task finds the place that set their key, as those of the composition have."""
    try:
        yield
    except PrimusError as error:
        sources = {leaf: source for leaf, source in composed.provenance.items() if isinstance(source, Source)}
        raise type(error)(*(placed(problem, sources) for problem in error.problems)) from error


def _show_job(composed: Composed, package: str | None) -> int:
    """Print the resolved job, or one node of it, as YAML: what a run would save."""
    tree = _node(composed.tree, package) if package else composed.tree
    head = f"# @package {package}\n" if package else ""
    print(head + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), end="")
    return int(ExitCode.DONE)


def _node(tree: Any, package: str) -> Any:
    for name in package.split("."):
        if not isinstance(tree, dict) or name not in tree:
            hint = key_hint(package, all_keys())
            raise UserError(Problem(key="--package", what=f"the job has no {package}", hint=hint))
        tree = tree[name]
    return tree


def _run_joined(request: Request, outer: OuterLaunch) -> int:
    """Become one rank of an outer torchrun or srun: rank 0 composes for all, and tells them also when it cannot."""
    if not outer.is_main:
        follow()
    with Publication() as publication, publication.shared():
        return run_composed(compose(request))


def _run_sweep(request: Request) -> int:
    """Run the points that the command line lists, or those that a sweeper chooses."""
    points = Points(request)
    sweeper = points.sweeper()
    if sweeper == BASIC:
        return _run_listed(points)
    from primus_hydra.tasks.sampled import run_sampled  # only here: few sweeps need Hydra's plugins

    gc.enable()
    return run_sampled(request, points, sweeper)


def _run_listed(points: Points) -> int:
    """Compose every point first, so that a wrong one starts nothing; skip those that no machine could lay out."""
    kept, skipped = sweep_layouts(points.all())
    if skipped and not kept:
        raise UserError(*(_labelled(p, _label_of(one.point.swept)) for one in skipped for p in one.problems))
    for one in skipped:
        print(f"skipped {_label_of(one.point.swept)}: {'; '.join(p.what for p in one.problems)}", file=sys.stderr)
    return run_points(kept, skipped)


def _label_of(swept: Sequence[str]) -> str:
    """Name a point of a sweep in a message."""
    return f"point {', '.join(swept)}" if swept else "the only point"


def _labelled(problem: Problem, label: str) -> Problem:
    return dataclasses.replace(problem, what=f"{problem.what} ({label})")


def _is_for_hydra(flags: argparse.Namespace) -> bool:
    return bool(flags.hydra_help or flags.cfg or flags.info)


def _hand_to_hydra(argv: Sequence[str], flags: argparse.Namespace, request: Request) -> int:
    """Let Hydra serve its own flags; overrides are spelled as we would spell them."""

    @hydra.main(version_base=HYDRA_VERSION_BASE, config_path=f"pkg://{CONFIG_MODULE}", config_name=CONFIG_NAME)
    def app(config: DictConfig) -> None:
        raise AssertionError(f"a flag that shows something ran a job: {config}")

    register_schema()
    with user_dirs(request.config_dirs), _argv(_hydra_argv(argv, request)):
        app()
    return int(ExitCode.DONE)


def _hydra_argv(argv: Sequence[str], request: Request) -> list[str]:
    """Return the flags as typed, after the overrides as Hydra should read them: `--info` would swallow one."""
    if "--hydra-help" in argv:
        return [sys.argv[0], "--hydra-help"]  # it composes Hydra's own node only, to which no override of ours fits
    kept = [word for word in argv if word not in request.overrides]
    return [sys.argv[0], *spell_for_hydra(request), *kept]


@contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, argv
    try:
        yield
    finally:
        sys.argv = before
