"""How a function is called in a process of its own, from the launcher's side: a request goes in, a reply comes back.

What a hook's package imports stays out of the launcher.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from primus_hydra.errors import Problem, UserError, raise_all
from primus_hydra.hooks.entry import Hook
from primus_hydra.hooks.process import Stops, run_process

_CALL_MODULE = "primus_hydra.hooks.call"
_CHECK_TIMEOUT_S = 300.0
_WORDS = 20
"""Last lines of a check that failed to tell anything."""


class Exchange:
    """Two unnamed files through which a request goes to the process of a function, and its reply comes back."""

    def __init__(self, act: str, request: Mapping[str, Any]) -> None:
        self._act = act
        self._text = json.dumps(request).encode()

    def __enter__(self) -> Exchange:
        with contextlib.ExitStack() as stack:
            self._request = stack.enter_context(tempfile.TemporaryFile())
            self._reply = stack.enter_context(tempfile.TemporaryFile())
            self._request.write(self._text)
            self._request.seek(0)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def descriptors(self) -> tuple[int, int]:
        """What the process inherits."""
        return self._request.fileno(), self._reply.fileno()

    @property
    def arguments(self) -> list[str]:
        """The interpreter's arguments."""
        return ["-m", _CALL_MODULE, self._act, *(str(number) for number in self.descriptors)]

    def reply(self) -> dict[str, Any] | None:
        """Return the reply; None if there is none, or half of one."""
        self._reply.seek(0)
        try:
            data = json.loads(self._reply.read())
        except ValueError:
            return None
        return data if isinstance(data, dict) else None


def check_functions(hooks: Sequence[Hook], python: Sequence[str], environment: Mapping[str, str]) -> None:
    """Look whether the functions of hooks are there and take their arguments; raises UserError with every problem.

    `python` is the interpreter's command. Nothing is called.
    """
    entries = {hook.key: dict(hook.target) for hook in hooks if hook.target is not None}
    if not entries:
        return
    words: deque[str] = deque(maxlen=_WORDS)
    with Exchange("check", entries) as exchange:
        run_process(
            [*python, *exchange.arguments],
            environment=environment,
            timeout_s=_CHECK_TIMEOUT_S,
            stops=Stops(),
            on_line=lambda _, line: words.append(line.decode(errors="replace")),
            keep_open=exchange.descriptors,
        )
        reply = exchange.reply()
    if reply is None:
        raise UserError(Problem(key="hooks", what="the functions cannot be imported", hint="\n".join(words)))
    raise_all([Problem(**problem) for problem in reply["problems"]])
