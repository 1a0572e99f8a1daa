"""Signals that come to a node's launcher before it listens to them for its ranks: while it imports, prepares, waits.

Without this they would end it as they end any program, and the job would have failed where it only has to go on later.
"""

from __future__ import annotations

import signal
from types import FrameType

from primus_hydra.launch.cluster.meeting import current_host

HEARD = (signal.SIGTERM, signal.SIGUSR2)


class StoppedEarly(BaseException):
    """A signal came before any rank was started; like KeyboardInterrupt it is no error that something may swallow."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


class EarlyStops:
    """What becomes of the signals of a scheduler while nobody else listens; they are left to it until `ignore`."""

    def __init__(self, *, obey: bool) -> None:
        self._obey = obey
        for number in HEARD:
            signal.signal(number, self._note)

    def ignore(self) -> None:
        """Let nothing cut off what is left to do: Slurm sends SIGKILL when it has waited long enough."""
        for number in HEARD:
            signal.signal(number, signal.SIG_IGN)

    def _note(self, number: int, frame: FrameType | None) -> None:
        host = current_host()
        # Once nodes were told what to run, the end of the attempt is being written: it is told there.
        if self._obey and not (host is not None and host.told):
            self._obey = False
            raise StoppedEarly(number)


def early_stops(*, obey: bool = True) -> EarlyStops:
    """Listen from now on; `obey`: end what is being done, by StoppedEarly."""
    return EarlyStops(obey=obey)
