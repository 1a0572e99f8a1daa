"""Upstream's own parser: made, fed with arguments, and asked whether they go together; in a rank only.

What it refuses is the user's to mend, so its exits, assertions and errors become a UserError.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import linecache
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from megatron.training import arguments

from primus_hydra.backends.megatron.training.describe import Arguments, describe_parser
from primus_hydra.errors import Problem, UserError


def upstream_parser() -> argparse.ArgumentParser:
    """Return the parser that `megatron.training` makes for itself."""
    parser = argparse.ArgumentParser(description="Megatron-LM", allow_abbrev=False)
    made: argparse.ArgumentParser = arguments.add_megatron_arguments(parser)
    return made


@functools.cache
def upstream_arguments() -> Arguments:
    """Return the description of every argument; upstream takes half a second to make its parser."""
    return describe_parser(upstream_parser())


def parse(argv: Sequence[str]) -> Any:
    """Return upstream's namespace, validated by upstream; raises UserError with what upstream says against it.

    The ranks' numbers are taken from the environment, as upstream does.
    """
    with _as_user_error(), _command_line(argv):
        args = arguments.parse_args()
        arguments.validate_args(args)
    return args


@contextlib.contextmanager
def _command_line(argv: Sequence[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = [before[0], *argv]
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def _as_user_error() -> Iterator[None]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as error:
        raise UserError(_refusal(_last_line(said.getvalue()) or f"it ended with {error.code}")) from error
    except (AssertionError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UserError(_refusal(str(error) or f"{type(error).__name__} at {_place(error)}")) from error
    finally:
        print(said.getvalue(), end="", file=sys.stderr)


def _refusal(text: str) -> Problem:
    return Problem(key="backend.config", what=f"megatron.training refuses these arguments: {text}")


def _last_line(text: str) -> str:
    lines = [line.partition(": error: ")[2] or line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _place(error: BaseException) -> str:
    """Say which line an assertion without words stands in."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name}: {linecache.getline(last.filename, last.lineno or 0).strip()}"
