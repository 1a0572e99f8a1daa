"""From whatever ends a command to its exit code: errors are shown, never raised."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from primus_hydra.errors import ExitCode, PrimusError


def guarded(run: Callable[[], int]) -> int:
    """Run and return the exit code; an error that a person can mend is shown without a traceback, a bug with it."""
    try:
        return run()
    except PrimusError as error:
        from primus_hydra.ui.errors import show_error  # only here: it is slow to import

        show_error(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except Exception:
        from primus_hydra.ui.errors import show_bug

        show_bug(traceback.format_exc())
        return int(ExitCode.BUG)
