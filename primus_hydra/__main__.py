"""`python -m primus_hydra` and the console script `primus-hydra`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command and exit with its code; what needs no composition is answered before Hydra is imported."""
    from primus_hydra.answers import quick_answer
    from primus_hydra.guard import guarded

    # Nothing of what is imported and composed becomes garbage: looking for it takes a fifth of a short command's time.
    # The collector is back before a task runs (`app`).
    gc.disable()
    argv = sys.argv[1:]
    sys.exit(guarded(lambda: _run(argv) if (code := quick_answer(argv)) is None else code))


def _run(argv: list[str]) -> int:
    from primus_hydra.app import run_command

    return run_command(argv)


if __name__ == "__main__":
    main()
