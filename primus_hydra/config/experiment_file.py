"""`experiment=PATH`: an experiment file anywhere on disk, offered to Hydra as if it lay in a group folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from hydra.core.config_store import ConfigStore

from primus_hydra.config.files import leaf_lines_of
from primus_hydra.config.provenance import Source
from primus_hydra.config.sources import FileBook
from primus_hydra.errors import Problem

PACKAGE = "_global_"


@dataclass(frozen=True, kw_only=True)
class ExperimentFile:
    """What taking an experiment file gave: the sources of its leaves, or what is wrong with it."""

    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def take_experiment_file(overrides: Sequence[str]) -> tuple[list[str], ExperimentFile]:
    """Replace `experiment=some/file.yaml` by the name under which the file was stored; other overrides pass.

    An override whose file cannot be used stays in its place as `experiment=null`, so that positions keep their count.
    """
    taken = ExperimentFile()
    result: list[str] = []
    for position, override in enumerate(overrides, start=1):
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment" and value.endswith((".yaml", ".yml")):
            file = Path(value).expanduser()
            taken = _take(file, f"override {position}: {override}")
            result.append(f"experiment={'null' if taken.problems else _stored_name(file)}")
        else:
            result.append(override)
    return result, taken


def _stored_name(file: Path) -> str:
    return f"{_plain(file.stem)}-{blake2b(str(file.absolute()).encode(), digest_size=3).hexdigest()}"


def _plain(stem: str) -> str:
    """Return the stem with the letters that Hydra's grammar takes in the name of an option."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in stem)


def _take(file: Path, place: str) -> ExperimentFile:
    if not file.is_file():
        what = f"{file} is a folder, not a file" if file.is_dir() else f"there is no file {file}"
        return _wrong(Problem(key="experiment", what=what, where=place, hint=f"looked in {Path.cwd()}"))
    book = FileBook()
    text = book.read(file)
    config = book.config(file, PACKAGE)
    if text.package not in (None, PACKAGE):
        what = f"has the package {text.package}"
        hint = f"an experiment given by its path sets keys from the top: write `# @package {PACKAGE}`, or leave it out"
        return _wrong(Problem(key="experiment", what=what, where=f"{file}", hint=hint))
    if book.problems:
        return _wrong(*book.problems[file])
    if not config:
        what = "is empty: an experiment is a group of keys, or a defaults list with overrides"
        return _wrong(Problem(key="experiment", what=what, where=str(file)))
    ConfigStore.instance().store(
        group="experiment", name=_stored_name(file), node=config, package=PACKAGE, provider=str(file)
    )
    return ExperimentFile(
        sources={
            leaf: Source(kind="file", text=f"{file}:{line}", file=str(file), line=line)
            for leaf, line in (leaf_lines_of(text.root) if text.root is not None else ())
        }
    )


def _wrong(*problems: Problem) -> ExperimentFile:
    return ExperimentFile(problems=list(problems))
