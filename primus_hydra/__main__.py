"""`python -m primus_hydra` and the console script `primus-hydra`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command and exit with its code."""
    from primus_hydra.app import run_command

    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
