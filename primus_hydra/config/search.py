"""Where groups are looked for: the user's folders first, then this project's own, then Hydra's.

Hydra appends `--config-dir` to its search path, so that a user's file never wins over a packaged one of the same name.
The folders kept here are put in front by the search path plugin in `hydra_plugins`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

CONFIG_MODULE = "primus_hydra.conf"
CONFIG_NAME = "config"
HYDRA_VERSION_BASE = "1.3"
USER_CONF_ENV = "PRIMUS_CONF"

_user_dirs: ContextVar[tuple[Path, ...]] = ContextVar("primus_hydra_user_dirs", default=())


@contextmanager
def user_dirs(folders: Sequence[Path]) -> Iterator[None]:
    """Put `folders` in front of the search path while the block runs."""
    token = _user_dirs.set(tuple(folder.absolute() for folder in folders))
    try:
        yield
    finally:
        _user_dirs.reset(token)


def current_user_dirs() -> tuple[Path, ...]:
    """Return the folders that win over ours: `--config-dir` first, then those of $PRIMUS_CONF (colon-separated)."""
    named = [Path(part).absolute() for part in os.environ.get(USER_CONF_ENV, "").split(":") if part]
    return (*_user_dirs.get(), *named)
