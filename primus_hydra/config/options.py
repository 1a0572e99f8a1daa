"""The options of every group, read from the files themselves: what a person may choose, without composing anything.

Looks in the user's folders and in this project's own; names that begin with `_` are internal and stay hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml

from primus_hydra.config.instantiate import TARGET, load_target
from primus_hydra.config.key_table import KeyRow, rows_of
from primus_hydra.config.search import CONFIG_MODULE, current_user_dirs
from primus_hydra.errors import PrimusError

TASK = "task"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One choice of a group: its file, and what the file's first comment says of it."""

    group: str
    name: str
    file: Path

    @property
    def doc(self) -> str:
        """The first line of comment that is not a directive for Hydra; empty where there is none."""
        return next(_comments(self.file), "")


def group_options(folders: Sequence[Path]) -> dict[str, list[Option]]:
    """Return the options of each top-level group, both sorted; of two files of one name the earlier folder's counts."""
    found: dict[tuple[str, str], Option] = {}
    for folder in folders:
        for option in _options_in(folder):
            found.setdefault((option.group, option.name), option)
    groups: dict[str, list[Option]] = {}
    for group, name in sorted(found):
        groups.setdefault(group, []).append(found[group, name])
    return groups


def own_folders() -> list[Path]:
    """Return the folder of this project's own groups."""
    spec = find_spec(CONFIG_MODULE)
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


def all_folders(config_dirs: Sequence[Path] = ()) -> list[Path]:
    """Return every folder that holds groups, the strongest first: `config_dirs`, those of $PRIMUS_CONF, our own."""
    return [*(folder.absolute() for folder in config_dirs), *current_user_dirs(), *own_folders()]


def task_rows(option: Option) -> list[KeyRow]:
    """Return the options of a task, as its class declares them; none where the class cannot be loaded."""
    target = _tree_of(option.file).get(TARGET)
    if not isinstance(target, str):
        return []
    try:
        schema = getattr(load_target(target, object, key=f"{TASK}.{TARGET}"), "Options", None)
    except PrimusError:
        return []
    return rows_of(schema, TASK) if schema is not None else []


def file_keys(option: Option) -> list[str]:
    """Return the keys that the file of an option sets on its top level, without loading what it names."""
    return [str(name) for name in _tree_of(option.file) if not str(name).startswith("_") and name != "defaults"]


def _options_in(folder: Path) -> Iterator[Option]:
    for group in _visible(folder.iterdir() if folder.is_dir() else ()):
        if group.is_dir() and group.name != "hydra":
            for file in _visible(group.glob("*.yaml")):
                yield Option(group=group.name, name=file.stem, file=file)


def _visible(paths: Iterable[Path]) -> list[Path]:
    return [path for path in sorted(paths) if not path.name.startswith(("_", "."))]


def _comments(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        if not line.startswith("#"):
            return
        text = line.lstrip("#").strip()
        if text and not text.startswith("@package"):
            yield text


def _tree_of(file: Path) -> dict[str, object]:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return tree if isinstance(tree, dict) else {}
