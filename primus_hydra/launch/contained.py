"""The first process in a container: it gives the one that starts the ranks its environment, and ends with it.

Run by its path, as `PYTHON -P contained.py ARGV...`, before anything of the container's Python is known to be there.
The first line of its standard input is what the launcher hands over (JSON, see `launch.containment`); the end of that
input means that the launcher is gone, and then nothing here may live on. A stop that somebody asks of the container,
through its engine, is passed on to the launcher, which alone decides what it means.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from primus_hydra.run.process import signal_process
from primus_hydra.runtime.tether import PARENT_VARIABLE

NOT_FOUND = 127
KILLED = 128 + signal.SIGKILL


def main(argv: Sequence[str]) -> int:
    """Run `argv` to its end; returns its exit code, 128+n after signal n."""
    handed = json.loads(sys.stdin.buffer.readline())
    child: list[subprocess.Popen[bytes]] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, _pass_on(handed, child))
    try:
        os.chdir(handed["workdir"])
        process = subprocess.Popen(
            list(argv), env=environment(os.environ, handed), stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        print(f"{argv[0]} cannot be started in the container: {error}", file=sys.stderr)
        return NOT_FOUND
    child.append(process)
    threading.Thread(target=_end_with_launcher, args=(process,), daemon=True).start()
    Path(handed["begun"]).touch()
    code = process.wait()
    return 128 - code if code < 0 else code


def environment(image: Mapping[str, str], handed: Mapping[str, Any]) -> dict[str, str]:
    """Return the image's environment, with what was handed over on top of it and in front of its import path."""
    values = {**image, **handed["environment"], PARENT_VARIABLE: str(os.getpid())}
    paths = [*handed["python_path"], values.get("PYTHONPATH", "")]
    values["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if not os.access(values.get("HOME") or "/nowhere", os.W_OK):
        values["HOME"] = tempfile.gettempdir()  # of a user whom the image does not know
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        values.setdefault("USER", f"uid-{os.getuid()}")  # libraries ask for the name, and fail without one
    return values


def _pass_on(handed: Mapping[str, Any], child: Sequence[subprocess.Popen[bytes]]) -> Callable[[int, object], None]:
    def handler(number: int, frame: FrameType | object | None) -> None:
        del number, frame
        launcher = handed["launcher"]
        if not signal_process(launcher["pid"], launcher["mark"], signal.SIGTERM):
            for process in child:  # a launcher that cannot be seen from here
                process.terminate()

    return handler


def _end_with_launcher(process: subprocess.Popen[bytes]) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    # What the process has started is tied to it, as it is to us.
    process.kill()
    os._exit(KILLED)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the thread may be in a read that never ends
