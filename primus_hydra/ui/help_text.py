"""`--help`: one screen with the groups, their options, the keys that people touch, and examples. Composes nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from primus_hydra.config.key_table import KeyRow, job_rows
from primus_hydra.config.options import Option

TOUCHED = (
    "training.steps",
    "training.global_batch_size",
    "training.seq_length",
    "optimizer.lr",
    "parallel.tp",
    "parallel.dp_shard",
    "precision.compute",
    "checkpoint.every",
    "run.name",
    "resume",
)
"""The ten keys that most commands set."""

EXAMPLES = (
    ("primus-hydra", "train a small Llama here, now, on real text"),
    ("primus-hydra model=llama3_8b platform=mi300x task=plan", "what that would do, and why"),
    ("primus-hydra -m optimizer.lr=1e-3,2e-3 training.steps=50", "a sweep: one run per value"),
)

_USAGE = "usage: primus-hydra [GROUP=OPTION ...] [KEY=VALUE ...] [FLAG ...]"
_FLAGS = "flags: -m (sweep)  --config-dir DIR  --cfg job  --info  --completion bash|zsh  --version  --hydra-help"
_MORE = (
    "more: task=help task.key=optimizer explains keys; task=plan shows a job; docs/reference lists everything",
    "      experiment=FILE.yaml binds choices and values together",
)
_WIDTH = 118


def help_text(options: Mapping[str, Sequence[Option]], keys: Mapping[str, KeyRow] | None = None) -> str:
    """Return the screen for the groups that are there."""
    rows = job_rows() if keys is None else keys
    return "".join(f"{line}\n" for line in _lines(options, rows))


def _lines(options: Mapping[str, Sequence[Option]], keys: Mapping[str, KeyRow]) -> Iterator[str]:
    yield from (
        _USAGE,
        "Compose a typed configuration and train a large language model. Groups, with their options:",
        "",
    )
    width = max(len(group) for group in options) + 2
    for group, choices in options.items():
        words = ", ".join(option.name for option in choices)
        yield from textwrap.wrap(
            words, _WIDTH, initial_indent=f"  {group:<{width}}", subsequent_indent=" " * (width + 2)
        )
    yield from ("", "keys that people set (default of the schema; a model or module may have its own):", "")
    width = max(len(key) for key in TOUCHED) + 2
    for key in TOUCHED:
        yield f"  {key:<{width}}{keys[key].doc} ({keys[key].default})"
    yield from ("", "examples:", "")
    width = max(len(command) for command, _ in EXAMPLES) + 2
    yield from (f"  {command:<{width}}{words}" for command, words in EXAMPLES)
    yield from ("", _FLAGS, *_MORE)
