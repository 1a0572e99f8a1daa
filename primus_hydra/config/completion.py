"""Completion of the console script in bash and zsh: what may follow, from the schema and the group files alone.

The shell calls `primus-hydra --complete WORDS...`, the last word being the one that is typed. Nothing is composed, so
that an answer comes while a person types. An answer that ends in `=`, `.` or `/` is to be continued without a space.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from primus_hydra.config.anchors import INIT_FROM
from primus_hydra.config.init_from import split_prefix
from primus_hydra.config.key_table import KeyRow, job_nodes, job_rows
from primus_hydra.config.options import TASK, Option, all_folders, file_keys, group_options, task_rows

EXPERIMENT = "experiment"
DEFAULT_TASK = "train"

FLAGS: dict[str, tuple[str, ...]] = {
    "--help": (),
    "--version": (),
    "--multirun": (),
    "--config-dir": (),
    "--config-name": (),
    "--cfg": ("job", "hydra", "all"),
    "--resolve": (),
    "--package": (),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
    "--hydra-help": (),
    "--completion": ("bash", "zsh"),
}
"""Flags in their long form, each with the words that may follow it."""

_SHORT = {"-c": "--cfg", "-i": "--info", "-cd": "--config-dir", "-m": "--multirun", "-h": "--help"}
_PATH_NAMES = ("path", "dir", "init_from")
_YAML = (".yaml", ".yml")

_BASH = r"""
_primus_hydra() {
    local line=${COMP_LINE:0:COMP_POINT} current before word
    local -a typed
    read -ra typed <<< "$line"
    [[ $line == *[[:space:]] ]] && typed+=("")
    current=${typed[${#typed[@]}-1]}
    # For readline the text after the last = or : is a word of its own: answer with that part only.
    before=${current%"${current##*[=:]}"}
    [[ $COMP_WORDBREAKS == *=* ]] || before=""
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("${word#"$before"}")
    done < <("${1/#\~\//$HOME/}" --complete "${typed[@]:1}" 2> /dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace 2> /dev/null
    return 0
}
complete -F _primus_hydra primus-hydra
"""

_ZSH = r"""
_primus_hydra() {
    local word
    local -a open closed
    for word in "${(@f)$(
        "${(Q)words[1]/#\~\//$HOME/}" --complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2> /dev/null
    )}"; do
        case $word in
            "") ;;
            *[=./]) open+=("$word") ;;
            *) closed+=("$word") ;;
        esac
    done
    (( $#open )) && compadd -S '' -a open
    (( $#closed )) && compadd -a closed
    return 0
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -D -u }
compdef _primus_hydra primus-hydra
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH}
"""What `eval "$(primus-hydra --completion SHELL)"` makes known to a shell."""


def complete(words: Sequence[str]) -> list[str]:
    """Return what the last word may become, sorted; `words` are those after the program's name."""
    *before, current = list(words) or [""]
    previous = _SHORT.get(before[-1], before[-1]) if before else ""
    if previous == "--config-dir":
        return sorted(_paths(current, suffixes=(), folders_only=True))
    if FLAGS.get(previous) and not current.startswith("-"):
        return _starting(FLAGS[previous], current)
    if current.startswith("-"):
        return _starting(FLAGS, current)
    options = group_options(all_folders(config_dirs(before)))
    key, equals, value = current.partition("=")
    if equals:
        return sorted(f"{key}={choice}" for choice in _values(key.lstrip("+~"), value, before, options))
    return _starting(_names(key, before, options), current)


def _names(typed: str, before: Sequence[str], options: dict[str, list[Option]]) -> Iterator[str]:
    """Yield groups and keys, one level of nodes at a time."""
    node = typed.rpartition(".")[0]
    if not node:
        yield from (f"{group}=" for group in {*options, EXPERIMENT})
    if node == TASK:
        chosen = _chosen_task(before, options)
        yield from (f"{TASK}.{name}=" for name in (file_keys(chosen) if chosen else ()))
    for known in job_nodes():
        if known.node == node:
            yield from (_spelled(row) for row in known.rows if row.key not in options or row.type.startswith("keys"))
        elif known.node and known.node.rpartition(".")[0] == node:
            yield f"{known.node}."


def _spelled(row: KeyRow) -> str:
    return f"{row.key}." if row.type.startswith("keys with") else f"{row.key}="


def _values(key: str, value: str, before: Sequence[str], options: dict[str, list[Option]]) -> Iterator[str]:
    head, last = _choice_being_typed(value)
    if key == EXPERIMENT:
        yield from _paths(value, suffixes=_YAML)
    if key in options:
        yield from (head + name for name in _starting((option.name for option in options[key]), last))
        return
    of_task = key.startswith(f"{TASK}.")
    row = _task_row(key, _chosen_task(before, options)) if of_task else job_rows().get(key)
    if row is None:
        return
    yield from (head + choice for choice in _starting(row.choices, last))
    if row.name in _PATH_NAMES:
        prefix, path = split_prefix(value) if row.key == INIT_FROM else ("", value)
        yield from (f"{prefix}{found}" for found in _paths(path, suffixes=None))


def _choice_being_typed(value: str) -> tuple[str, str]:
    """Split off the last choice of a list (`[tensorboard,wa`) or a sweep (`1,2`)."""
    cut = max(value.rfind(","), value.rfind("[")) + 1
    return value[:cut], value[cut:]


def _task_row(key: str, option: Option | None) -> KeyRow | None:
    return next((row for row in task_rows(option) if row.key == key), None) if option else None


def _chosen_task(before: Sequence[str], options: dict[str, list[Option]]) -> Option | None:
    named = [word.partition("=")[2] for word in before if word.startswith(f"{TASK}=")]
    name = named[-1] if named else DEFAULT_TASK
    return next((option for option in options.get(TASK, []) if option.name == name), None)


def config_dirs(words: Sequence[str]) -> list[Path]:
    """Return the folders that the words name by `--config-dir DIR` or `--config-dir=DIR`."""
    found = [folder for flag, folder in itertools.pairwise(words) if flag in ("--config-dir", "-cd")]
    found += [word.partition("=")[2] for word in words if word.startswith("--config-dir=")]
    return [Path(folder).expanduser() for folder in found if folder]


def _paths(typed: str, *, suffixes: tuple[str, ...] | None, folders_only: bool = False) -> Iterator[str]:
    """Yield files and folders that begin as typed; `suffixes` None takes every file."""
    head, slash, tail = typed.rpartition("/")
    folder = Path(f"{head}{slash}" or ".").expanduser()
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(tail) or (entry.name.startswith(".") and not tail):
            continue
        if entry.is_dir():
            yield f"{head}{slash}{entry.name}/"
        elif not folders_only and (suffixes is None or entry.suffix in suffixes):
            yield f"{head}{slash}{entry.name}"


def _starting(candidates: Iterable[str], typed: str) -> list[str]:
    return sorted({candidate for candidate in candidates if candidate.startswith(typed)})
