"""What the command answers without composing anything: help, version, completion. Imports neither Hydra nor torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version

from primus_hydra.errors import ExitCode, Problem, UserError

PROGRAM = "primus-hydra"
_COMPLETE = "--complete"
_COMPLETION = "--completion"


def quick_answer(argv: Sequence[str]) -> int | None:
    """Answer a command line if that needs no composition, and return the exit code; None if it is to be run.

    Raises UserError for a shell that there is no completion for.
    """
    if argv and argv[0] == _COMPLETE:
        return _complete(argv[1:])
    if argv and argv[0].partition("=")[0] == _COMPLETION:
        return _script(argv[0].partition("=")[2] or "".join(argv[1:2]))
    if {"--help", "-h"} & set(argv):
        return _help(argv)
    if "--version" in argv:
        print(f"{PROGRAM} {version(PROGRAM)} (Hydra {version('hydra-core')})")
        return int(ExitCode.DONE)
    return None


def _complete(words: Sequence[str]) -> int:
    from primus_hydra.config.completion import complete

    sys.stdout.write("".join(f"{word}\n" for word in complete(words)))
    return int(ExitCode.DONE)


def _script(shell: str) -> int:
    from primus_hydra.config.completion import SCRIPTS

    if shell not in SCRIPTS:
        what = f"there is no completion for {shell!r}" if shell else "needs the name of a shell"
        hint = f'in your shell: eval "$({PROGRAM} {_COMPLETION} bash)", or zsh'
        raise UserError(Problem(key=_COMPLETION, what=what, hint=hint))
    sys.stdout.write(SCRIPTS[shell])
    return int(ExitCode.DONE)


def _help(argv: Sequence[str]) -> int:
    from primus_hydra.config.completion import config_dirs
    from primus_hydra.config.options import all_folders, group_options
    from primus_hydra.ui.help_text import help_text

    sys.stdout.write(help_text(group_options(all_folders(config_dirs(argv)))))
    return int(ExitCode.DONE)
