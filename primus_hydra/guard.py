"""From whatever ends a command to its exit code: errors are shown, never raised."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from primus_hydra.errors import ExitCode, PrimusError
from primus_hydra.ui.screen import settle, silence


def guarded(run: Callable[[], int]) -> int:
    """Run and return the exit code; an error that a person can mend is shown without a traceback, a bug with it.

    Output that cannot be written any more, as its reader went away, does not change the code.
    """
    try:
        return _guarded(run)
    finally:
        for stream in (sys.stdout, sys.stderr):
            settle(stream)


def _guarded(run: Callable[[], int]) -> int:
    try:
        return run()
    except PrimusError as error:
        from primus_hydra.ui.errors import show_error  # only here: it is slow to import

        show_error(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:  # of a task that only prints: its reader has seen enough
        silence(sys.stdout)
        return int(ExitCode.DONE)
    except Exception:
        from primus_hydra.ui.errors import show_bug

        show_bug(traceback.format_exc())
        return int(ExitCode.BUG)
