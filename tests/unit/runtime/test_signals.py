"""A stop that comes before a process is ready for it is taken when it is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from primus_hydra.runtime.signals import STOP_SIGNALS, holding_stops

READY_LATE = """
import time
time.sleep(0.3)
from primus_hydra.runtime.signals import StopRequest
request = StopRequest()
request.install()
print(request.signal, flush=True)
"""


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_process_that_is_started_holds_a_stop_back_until_it_listens(number: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with holding_stops():
        process = subprocess.Popen([sys.executable, "-c", READY_LATE], stdout=subprocess.PIPE, text=True)
    time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=20)

    assert (process.returncode, said.strip()) == (0, str(number.value))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
