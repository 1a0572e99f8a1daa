"""Everything that a user can type, as sorted lines: what must not change unseen."""

from __future__ import annotations

from collections.abc import Iterator

from hydra._internal.utils import get_args_parser

from primus_hydra.app import REFUSED_FLAGS
from primus_hydra.config.completion import FLAGS
from primus_hydra.config.key_table import KeyRow, job_rows
from primus_hydra.config.options import TASK, group_options, own_folders, task_rows


def surface() -> str:
    """Return the surface: flags, groups with their options, keys with type, limits and default, options of tasks."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    refused = {name for name, _, _ in REFUSED_FLAGS}
    spellings = [set(action.option_strings) for action in get_args_parser()._actions]
    taken = {option for options in spellings if not options & refused for option in options}
    yield from (f"flag {flag}" for flag in sorted(taken | set(FLAGS)))
    groups = group_options(own_folders())
    for group, options in groups.items():
        yield f"group {group}: {' '.join(option.name for option in options)}"
    yield from (_key(row) for _, row in sorted(job_rows().items()))
    for option in groups[TASK]:
        yield from (f"{TASK}={option.name} {_key(row)}" for row in task_rows(option))


def _key(row: KeyRow) -> str:
    limits = f" ({row.limits})" if row.limits else ""
    return f"key {row.key}: {row.type}{limits} = {row.default}"
