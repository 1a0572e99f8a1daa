"""Two live attempts never share a run."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from primus_hydra.errors import UserError
from primus_hydra.run.lock import RunLock, read_holder

HOLD = """
import sys, time
from pathlib import Path
from primus_hydra.run.lock import RunLock
with RunLock(Path(sys.argv[1]), ["primus-hydra", "training.steps=3"]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run" / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_live_attempt_is_refused_and_told_who_holds_the_run(tmp_path, holder):
    with pytest.raises(UserError) as caught, RunLock(tmp_path / "run" / "lock"):
        pass
    text = str(caught.value)
    assert f"process {holder.pid} on {socket.gethostname()}" in text
    assert "primus-hydra training.steps=3" in text


def test_the_lock_of_a_killed_holder_is_free_at_once(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with RunLock(tmp_path / "run" / "lock"):
        assert read_holder(tmp_path / "run" / "lock").pid == os.getpid()


def test_a_released_lock_names_nobody_and_can_be_taken_again(tmp_path):
    for _ in range(2):
        with RunLock(tmp_path / "lock"):
            pass
    assert read_holder(tmp_path / "lock") is None


@pytest.fixture
def no_flock(monkeypatch):
    def refuse(_descriptor, _operation):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)


def claim(path, **changes):
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": 4e9, "command": "other", **changes}
    path.with_name("lock.claim").write_text(json.dumps(holder))


@pytest.mark.usefixtures("no_flock")
def test_without_flock_a_claim_file_keeps_others_out_and_goes_away_at_the_end(tmp_path):
    with RunLock(tmp_path / "lock"):
        with pytest.raises(UserError, match=f"process {os.getpid()} "), RunLock(tmp_path / "lock"):
            pass
        assert (tmp_path / "lock.claim").exists()
    assert not (tmp_path / "lock.claim").exists()


@pytest.mark.usefixtures("no_flock")
def test_without_flock_the_claim_of_a_dead_process_of_this_host_is_taken_over(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    claim(tmp_path / "lock", pid=ended.pid)
    with RunLock(tmp_path / "lock"):
        assert read_holder(tmp_path / "lock.claim").pid == os.getpid()


@pytest.mark.usefixtures("no_flock")
def test_without_flock_a_younger_process_with_the_holders_number_is_not_the_holder(tmp_path):
    claim(tmp_path / "lock", since=1.0)
    with RunLock(tmp_path / "lock"):
        pass


@pytest.mark.usefixtures("no_flock")
def test_without_flock_a_claim_of_another_host_stays_and_the_way_out_is_named(tmp_path):
    claim(tmp_path / "lock", host="elsewhere", pid=1)
    with pytest.raises(UserError, match=r"remove .*lock\.claim"), RunLock(tmp_path / "lock"):
        pass
    assert (tmp_path / "lock.claim").exists()


@pytest.mark.usefixtures("no_flock")
def test_without_flock_a_job_that_was_started_again_takes_over_its_own_claim(tmp_path):
    path = tmp_path / "lock"
    claim(path, host="elsewhere", job="71.0")
    for other in ("71.0", "72.1", None):
        with pytest.raises(UserError), RunLock(path, job=other):
            pass
    with RunLock(path, job="71.1"):
        assert read_holder(tmp_path / "lock.claim").job == "71.1"


def test_a_busy_lock_is_waited_for_where_that_is_asked_for(tmp_path, holder):
    threading.Timer(0.7, holder.kill).start()
    with RunLock(tmp_path / "run" / "lock", wait_s=30.0):
        assert read_holder(tmp_path / "run" / "lock").pid == os.getpid()
