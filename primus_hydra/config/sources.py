"""Where Hydra reads configuration files: folders, read by this project's reader instead of Hydra's.

Differences: a byte-order mark is no fault, `# @package` may stand below other comments, text for text keys stays as
written, and a broken file is noted instead of ending the composition, so that all broken files are told at once.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from primus_hydra.config.files import ConfigText, leaf_lines_of, read_config_file
from primus_hydra.errors import Problem


@dataclass
class FileBook:
    """The files read in one call, by path, and what is wrong with them; shared by all copies of a repository."""

    texts: dict[Path, ConfigText] = field(default_factory=dict)
    problems: dict[Path, list[Problem]] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> FileBook:
        """Hydra copies its repository for each composition: the book stays one."""
        del memo
        return self

    def read(self, file: Path) -> ConfigText:
        """Read a file once, and note its faults."""
        if file not in self.texts:
            self.texts[file] = read_config_file(file)
            if self.texts[file].problems:
                self.problems[file] = list(self.texts[file].problems)
        return self.texts[file]

    def config(self, file: Path, package: str) -> Any:
        """Return the file as a container of OmegaConf; an empty one where it is broken."""
        text = self.read(file)
        try:
            return OmegaConf.create(text.data(package))
        except OmegaConfBaseException as error:
            self.problems[file] = [_value_problem(error, text)]
            return OmegaConf.create({})
        except (yaml.YAMLError, ValueError) as error:
            said = str(getattr(error, "problem", None) or error)
            self.problems[file] = [Problem(what=f"cannot be read: {said}", where=str(file))]
            return OmegaConf.create({})


def _value_problem(error: OmegaConfBaseException, text: ConfigText) -> Problem:
    key = getattr(error, "full_key", None)
    line = dict(leaf_lines_of(text.root)).get(str(key)) if text.root is not None else None
    return Problem(
        key=str(key) if key else None,
        what=f"cannot be read: {str(error).splitlines()[0]}",
        where=f"{text.file}:{line}" if line else str(text.file),
        hint="an interpolation is ${KEY} or ${env:NAME,DEFAULT}",
    )


class FolderSource(ConfigSource):
    """One folder of groups, from `file://` or from a package on disk (`pkg://`)."""

    def __init__(self, original: ConfigSource, folder: Path, book: FileBook) -> None:
        self.provider = original.provider
        self.path = original.path
        self.folder = folder
        self._scheme = original.scheme()
        self._book = book
        self._original = original
        self._kinds: dict[str, str] = {}

    def scheme(self) -> str:  # type: ignore[override]
        """Return the scheme of the search path entry."""
        return self._scheme

    def file(self, config_path: str) -> Path:
        """Return the file of a config."""
        return self.folder / (config_path if config_path.endswith(".yaml") else f"{config_path}.yaml")

    def text(self, config_path: str) -> ConfigText:
        """Return the file of a config as it was read."""
        return self._book.read(self.file(config_path))

    def load_config(self, config_path: str) -> ConfigResult:
        """Read one file; Hydra's own as Hydra reads them."""
        if self.provider == "hydra":
            return self._original.load_config(config_path)
        file = self.file(config_path)
        if not file.exists():
            raise ConfigLoadError(f"Config not found : {file}")
        text = self._book.read(file)
        return ConfigResult(
            config=self._book.config(file, text.package or _group_package(config_path)),
            path=f"{self._scheme}://{self.path}",
            provider=self.provider,
            header={"package": text.package},
        )

    def place(self, config_path: str, package: str | None, repository: IConfigRepository) -> None:
        """Read a file again by the types below `package`, if it was read for another place."""
        if self.provider == "hydra":
            return
        text = self.text(config_path)
        if package is None or package == (text.package or _group_package(config_path)).replace("_global_", ""):
            return
        loaded = repository.load_config(config_path)
        if loaded is not None and text.root is not None:
            data = read_config_file(text.file).data(package)
            data.pop("defaults", None)
            loaded.config = OmegaConf.create(data)

    def available(self) -> bool:
        """Whether the folder is there."""
        return self.folder.is_dir()

    def is_group(self, config_path: str) -> bool:
        """Whether a folder of that name is there."""
        return self._kind(config_path, is_group=True)

    def is_config(self, config_path: str) -> bool:
        """Whether a file of that name is there."""
        return self._kind(config_path, is_group=False)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """List the groups or the options below a folder."""
        found: list[str] = []
        for entry in sorted((self.folder / config_path).iterdir()):
            self._list_add_result(found, f"{config_path}/{entry.name}", entry.name, results_filter)
        return sorted(set(found))

    def _list_add_result(
        self, files: MutableSequence[str], file_path: str, file_name: str, results_filter: ObjectType | None
    ) -> None:
        entry = self.folder / file_path.lstrip("/")
        is_group = entry.is_dir() and file_name != "__pycache__"
        is_option = entry.suffix == ".yaml" and entry.is_file()
        if (is_group and results_filter is not ObjectType.CONFIG) or (
            is_option and results_filter is not ObjectType.GROUP
        ):
            files.append(file_name.removesuffix(".yaml") if is_option else file_name)

    def _kind(self, config_path: str, *, is_group: bool) -> bool:
        if config_path not in self._kinds:
            group, option = (self.folder / config_path).is_dir(), self.file(config_path).is_file()
            self._kinds[config_path] = f"{'g' if group else ''}{'o' if option else ''}"
        return ("g" if is_group else "o") in self._kinds[config_path]


class FolderRepository(ConfigRepository):
    """Hydra's repository, with every folder read by `FolderSource`."""

    def __init__(self, search_path: ConfigSearchPath, book: FileBook) -> None:
        self.book = book
        super().__init__(search_path)

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Make the sources of a search path; also called again for `hydra.searchpath`."""
        super().initialize_sources(config_search_path)
        self.sources = [_ours(source, self.book) for source in self.sources]


def _ours(source: ConfigSource, book: FileBook) -> ConfigSource:
    folder = folder_of(source)
    if folder is None:
        return source
    return FolderSource(source, folder, book)


def folder_of(source: ConfigSource) -> Path | None:
    """Return the folder behind a source, or None for one that is not on disk."""
    if source.scheme() == "file":
        return Path(source.path)
    if source.scheme() == "pkg" and source.path:
        try:
            spec = find_spec(source.path.replace("/", "."))
        except ModuleNotFoundError:
            return None
        places = list(spec.submodule_search_locations or []) if spec else []
        return Path(places[0]) if places else None
    return None


def _group_package(config_path: str) -> str:
    """Return the package that Hydra gives a file without a header: its group, with dots."""
    return ".".join(config_path.split("/")[:-1])
