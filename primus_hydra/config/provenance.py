"""Where each leaf of the composed tree came from: the schema, a line of a file, or an override."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hydra._internal.config_repository import IConfigRepository
from hydra.core.default_element import ResultDefault

from primus_hydra.config.files import leaf_lines_of
from primus_hydra.config.overrides import Override
from primus_hydra.config.sources import FolderSource, folder_of
from primus_hydra.errors import Problem

SourceKind = Literal["schema", "file", "override", "detected"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One place that set a value; `text` names it for a person (`model/llama3_8b.yaml:4`)."""

    kind: SourceKind
    text: str
    file: str | None = None
    line: int | None = None


def trace(leaves: Sequence[str], files: Mapping[str, Source], overrides: Sequence[Override]) -> dict[str, Source]:
    """Return the source of each leaf: the overrides, then the files (see `file_sources`), then the schema."""
    typed = {
        override.key: Source(kind="override", text=override.where) for override in overrides if not override.is_group
    }
    schema = Source(kind="schema", text="schema default")
    return {leaf: source_of(leaf, typed) or source_of(leaf, files) or schema for leaf in leaves}


def file_sources(defaults: Sequence[ResultDefault], repository: IConfigRepository) -> dict[str, Source]:
    """Return what files set, by dotted name: the strongest of them in composition order."""
    files: dict[str, Source] = {}
    for default in defaults:
        files.update(_file_sources(default, repository))
    return files


def source_of(leaf: str, sources: Mapping[str, Source]) -> Source | None:
    """Return the source of a leaf, or of the nearest node above it that was set whole."""
    parts = leaf.partition("[")[0].split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((sources[name] for name in names if name in sources), None)


def placed(problem: Problem, sources: Mapping[str, Source]) -> Problem:
    """Return the problem with the place that set its key; the schema's defaults are no place."""
    source = None if problem.where is not None or problem.key is None else source_of(problem.key, sources)
    if source is None or source.kind == "schema":
        return problem
    return dataclasses.replace(problem, where=f"{source.file}:{source.line}" if source.file else source.text)


def _file_sources(default: ResultDefault, repository: IConfigRepository) -> dict[str, Source]:
    if default.config_path is None or default.config_path.startswith("hydra/"):
        return {}
    for source in repository.get_sources():
        if source.is_config(default.config_path):
            return _lines(default, source) if isinstance(source, FolderSource) and source.provider != "hydra" else {}
    return {}


def _lines(default: ResultDefault, source: FolderSource) -> dict[str, Source]:
    text = source.text(default.config_path or "")
    name = f"{default.config_path}.yaml"
    return {
        f"{default.package}.{leaf}" if default.package else leaf: Source(
            kind="file", text=f"{name}:{line}", file=str(text.file), line=line
        )
        for leaf, line in (leaf_lines_of(text.root) if text.root is not None else ())
    }


def source_folders(repository: IConfigRepository) -> list[Path]:
    """Return the folders of the search path, the strongest first."""
    folders = [folder_of(source) for source in repository.get_sources() if source.provider != "hydra"]
    return [folder for folder in folders if folder is not None]
