"""The command: overrides in, an exit code out. One `@hydra.main` app behind our own front end.

The front end composes once, so that all mistakes are known before anything starts. What Hydra serves itself (`--cfg`,
`--info`, `--help`, completion, another sweeper) goes to Hydra, on the same groups and with the same overrides.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from primus_hydra.config.compose import Request, compose, spell_for_hydra
from primus_hydra.config.composed import Composed
from primus_hydra.config.loader import register_schema
from primus_hydra.config.search import CONFIG_MODULE, CONFIG_NAME, HYDRA_VERSION_BASE, user_dirs
from primus_hydra.config.sweep import SweepPoint, expand_sweep
from primus_hydra.errors import ExitCode, PrimusError, Problem
from primus_hydra.launch.outer import OuterLaunch, Publication, follow, outer_launch
from primus_hydra.tasks.contract import make_task
from primus_hydra.ui.errors import show_bug, show_error


def run_command(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are shown, never raised."""
    try:
        return _run(argv)
    except PrimusError as error:
        show_error(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except Exception:
        show_bug(traceback.format_exc())
        return int(ExitCode.BUG)


def _run(argv: Sequence[str]) -> int:
    flags = parse_flags(argv)
    request = Request(
        overrides=list(flags.overrides),
        config_dirs=[Path(flags.config_dir)] if flags.config_dir else [],
        config_name=flags.config_name or CONFIG_NAME,
        multirun=flags.multirun,
    )
    if _is_for_hydra(flags):
        return _hand_to_hydra(flags, request)
    outer = outer_launch(os.environ)
    if outer is not None:
        return _run_joined(request, outer)
    return _run_points(request) if flags.multirun else run_composed(compose(request))


def parse_flags(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line with Hydra's parser; unlike Hydra, flags and overrides may come in any order."""
    parser = get_args_parser()
    parser.prog = "primus_hydra"
    return parser.parse_intermixed_args(list(argv))


def run_composed(composed: Composed) -> int:
    """Run the task of a composed job."""
    return make_task(composed.job.task).run(composed)


def _run_joined(request: Request, outer: OuterLaunch) -> int:
    """Become one rank of an outer torchrun or srun: rank 0 composes for all, and tells them also when it cannot."""
    if not outer.is_main:
        follow()
    with Publication() as publication, publication.shared():
        return run_composed(compose(request))


def _run_points(request: Request) -> int:
    """Compose every point first, so that a wrong one starts nothing; then run them one after the other."""
    composed = [_compose_point(request, point) for point in expand_sweep(request.overrides)]
    return max((run_composed(point) for point in composed), default=int(ExitCode.DONE))


def _compose_point(request: Request, point: SweepPoint) -> Composed:
    try:
        return compose(dataclasses.replace(request, overrides=list(point.overrides), swept=point.swept, multirun=False))
    except PrimusError as error:
        label = ", ".join(point.swept) or "the sweep"
        raise type(error)(*(_labelled(problem, label) for problem in error.problems)) from None


def _labelled(problem: Problem, label: str) -> Problem:
    return dataclasses.replace(problem, what=f"{problem.what} (point {label})")


def _is_for_hydra(flags: argparse.Namespace) -> bool:
    other_sweeper = flags.multirun and any(text.startswith("hydra/sweeper=") for text in flags.overrides)
    return bool(flags.help or flags.hydra_help or flags.cfg or flags.info or flags.shell_completion or other_sweeper)


def _hand_to_hydra(flags: argparse.Namespace, request: Request) -> int:
    """Let Hydra serve its own flags; overrides are spelled as we would spell them."""
    codes: list[int] = []

    @hydra.main(version_base=HYDRA_VERSION_BASE, config_path=f"pkg://{CONFIG_MODULE}", config_name=CONFIG_NAME)
    def app(config: DictConfig) -> None:
        del config  # composed again from the point's overrides, so that it is checked as any other job
        codes.append(run_composed(compose(dataclasses.replace(request, overrides=_task_overrides(), multirun=False))))

    register_schema()
    with user_dirs(request.config_dirs), _argv(_hydra_argv(flags, request)):
        app()
    return max(codes, default=int(ExitCode.DONE))


def _task_overrides() -> list[str]:
    return [str(override) for override in HydraConfig.get().overrides.task]


def _hydra_argv(flags: argparse.Namespace, request: Request) -> list[str]:
    """Return the flags as typed, with the overrides as Hydra should read them."""
    spelled = list(request.overrides) if flags.shell_completion else spell_for_hydra(request)
    given = list(request.overrides)
    kept = [word for word in sys.argv[1:] if word not in given]
    return [sys.argv[0], *kept, *spelled]


@contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, argv
    try:
        yield
    finally:
        sys.argv = before
