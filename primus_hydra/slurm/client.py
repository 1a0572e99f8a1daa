"""Calling a program of Slurm: what it said, or why nothing was heard. Never waits for ever."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

TIMEOUT_S = 60.0
"""Slurm's programs try for some 20 s to reach a controller that is away."""
_UNREACHABLE = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted",
    "connection refused",
    "communication connection failure",
    "slurm backup controller in standby",
    "protocol authentication error",
    "munge",
)
_OF_THE_CLIENT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a program of Slurm printed. `code` is None if it is not installed or was not heard of in time."""

    code: int | None
    out: str = ""
    words: str = ""

    @property
    def missing(self) -> bool:
        """Whether the program is not there at all."""
        return self.code is None and not self.words

    @property
    def unreachable(self) -> bool:
        """Whether the controller was not reached, so that nothing is known of the answer."""
        said = self.words.lower()
        return self.code is None or (self.code != 0 and any(part in said for part in _UNREACHABLE))


Call = Callable[[Sequence[str]], Answer]


def call(argv: Sequence[str], environ: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Answer:
    """Run a program of Slurm; it sees no option that was meant for a job around this command."""
    env = client_environment(os.environ if environ is None else environ)
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=env,
            start_new_session=True,  # Ctrl-C is for us: we decide what becomes of the job
        )
    except FileNotFoundError:
        return Answer(code=None)
    except subprocess.TimeoutExpired as error:
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
        words = (_words(said, argv[0]), f"no answer within {timeout_s:g} s")
        return Answer(code=None, words="; ".join(word for word in words if word))
    except OSError as error:
        return Answer(code=None, words=str(error))
    return Answer(code=done.returncode, out=done.stdout, words=_words(done.stderr, argv[0]))


def client_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a job that this command itself may run in."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "SLURMD_"))}
    own = {name: environ[name] for name in _OF_THE_CLIENT if name in environ}
    return kept | own


def _words(stderr: str, program: str) -> str:
    """Return what a program complained of, without its own name before each line."""
    prefixes = (f"{program}: error: ", f"{program}: fatal: ", f"{program}: ")
    lines = []
    for line in stderr.strip().splitlines():
        prefix = next((prefix for prefix in prefixes if line.startswith(prefix)), "")
        lines.append(line.removeprefix(prefix).strip())
    return "; ".join(line for line in lines if line and not line.startswith("Try "))
