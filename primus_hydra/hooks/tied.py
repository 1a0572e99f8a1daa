"""Becomes the command that its arguments name, tied to the launcher's life: `python -m ... COMMAND [ARGUMENT...]`.

A file that says no interpreter is given to the shell, as shells do.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent

NOT_STARTED = 126
"""Exit code of a command that is there and cannot be started, as in a shell."""


def main(argv: Sequence[str]) -> None:
    """Replace this process by the command; returns only by an exit."""
    die_with_parent()
    environment = {name: value for name, value in os.environ.items() if name != PARENT_VARIABLE}
    try:
        _become(argv, environment)
    except OSError as error:
        print(f"{argv[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


def _become(argv: Sequence[str], environment: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], list(argv), environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    os.execvpe("sh", ["sh", *argv], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
