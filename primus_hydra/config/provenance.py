"""Where each leaf of the composed tree came from: the schema, a line of a file, or an override."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import yaml
from hydra._internal.config_repository import IConfigRepository
from hydra.core.default_element import ResultDefault

from primus_hydra.config.overrides import Override

SourceKind = Literal["schema", "file", "override", "detected"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One place that set a value; `text` names it for a person (`model/llama3_8b.yaml:4`)."""

    kind: SourceKind
    text: str
    file: str | None = None
    line: int | None = None


def trace(
    leaves: Sequence[str],
    defaults: Sequence[ResultDefault],
    repository: IConfigRepository,
    overrides: Sequence[Override],
) -> dict[str, Source]:
    """Return the source of each leaf: the strongest of the files in composition order, then the overrides."""
    sources: dict[str, Source] = {}
    for default in defaults:
        sources.update(_file_sources(default, repository))
    values = [override for override in overrides if not override.is_group]
    sources.update({override.key: Source(kind="override", text=override.where) for override in values})
    schema = Source(kind="schema", text="schema default")
    return {leaf: _strongest(leaf, sources, values) or schema for leaf in leaves}


def _strongest(leaf: str, sources: dict[str, Source], overrides: Sequence[Override]) -> Source | None:
    """Return the source of a leaf; an override of a parent (a dict or list given whole) counts for what is below it."""
    for override in reversed(overrides):
        if leaf == override.key or leaf.startswith(f"{override.key}."):
            return sources[override.key]
    parts = leaf.split(".")
    for length in range(len(parts), 0, -1):
        source = sources.get(".".join(parts[:length]))
        if source is not None:
            return source
    return None


def _file_sources(default: ResultDefault, repository: IConfigRepository) -> dict[str, Source]:
    if default.config_path is None or default.config_path.startswith("hydra/"):
        return {}
    file = config_file(default.config_path, repository)
    if file is None:
        return {}
    package = default.package or ""
    name = f"{default.config_path}.yaml"
    return {
        f"{package}.{leaf}" if package else leaf: Source(kind="file", text=f"{name}:{line}", file=str(file), line=line)
        for leaf, line in leaf_lines(file.read_text(encoding="utf-8-sig"))
    }


def config_file(config_path: str, repository: IConfigRepository) -> Path | None:
    """Return the file behind a config of the search path, or None for one that is not a file."""
    for source in repository.get_sources():
        if not source.is_config(config_path):
            continue
        folder = _folder(source.scheme(), source.path)
        return None if folder is None else folder / f"{config_path}.yaml"
    return None


def source_folders(repository: IConfigRepository) -> list[Path]:
    """Return the folders of the search path, the strongest first."""
    folders = [
        _folder(source.scheme(), source.path) for source in repository.get_sources() if source.provider != "hydra"
    ]
    return [folder for folder in folders if folder is not None]


def _folder(scheme: str, path: str) -> Path | None:
    if scheme == "file":
        return Path(path)
    if scheme == "pkg":
        spec = find_spec(path.replace("/", "."))
        places = list(spec.submodule_search_locations or []) if spec else []
        return Path(places[0]) if places else None
    return None


def leaf_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each leaf of a YAML file with its line, counted from 1; the defaults list is left out."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        for name, line in _walk(root, ""):
            if name != "defaults":
                yield name, line


def _walk(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in node.value:
        name = f"{prefix}.{key.value}" if prefix else str(key.value)
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _walk(value, name)
        else:
            yield name, key.start_mark.line + 1
