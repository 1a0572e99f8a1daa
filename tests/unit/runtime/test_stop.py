"""A signal is a request; the step decides. (Several ranks: tests/integration.)"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from primus_hydra.runtime.signals import STOP_SIGNALS, StopRequest
from primus_hydra.runtime.stop import AgreedStop


@pytest.fixture
def request_of_stop():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    request = StopRequest()
    request.install()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_stop_signal_is_noted_and_ends_nothing(request_of_stop: StopRequest, number: signal.Signals):
    os.kill(os.getpid(), number)
    assert request_of_stop.signal == number


def test_one_process_stops_after_the_step_in_which_the_signal_came(request_of_stop: StopRequest):
    stop = AgreedStop(request_of_stop, world_size=1)
    assert not stop.agreed(1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.agreed(2)
    assert stop.agreed(3)
    assert stop.stopped_at == 2


def test_one_process_stops_without_torch():
    code = (
        "import sys; from primus_hydra.runtime.stop import *; AgreedStop(StopRequest(), 1).agreed(1);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_forked_helper_can_still_be_ended(request_of_stop: StopRequest):
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(tell, b".")
        time.sleep(10)
        os._exit(0)
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
