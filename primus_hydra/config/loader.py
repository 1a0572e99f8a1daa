"""Hydra's configuration loader with additions: files are read by our reader and once, overrides are parsed once, and
the defaults list is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from primus_hydra.config.build import defaults_of
from primus_hydra.config.grammar import of_text, parse
from primus_hydra.config.resolvers import register_resolvers
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.search import CONFIG_MODULE, HYDRA_VERSION_BASE
from primus_hydra.config.sources import FileBook, FolderRepository, FolderSource


class RecordingLoader(ConfigLoaderImpl):
    """Keeps the list of files of the last composition, so that provenance needs no second pass."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        super().__init__(search_path)
        self.book = FileBook()
        self.repository = CachingConfigRepository(FolderRepository(search_path, self.book))  # type: ignore[assignment]
        self.composed_from: list[ResultDefault] = []
        self._parsed: dict[str, HydraOverride] = {}

    def know(self, parsed: Mapping[str, HydraOverride]) -> None:
        """Take overrides that were parsed before, by their spelling, so that none is parsed twice."""
        self._parsed.update(parsed)

    def load(self, config_name: str, overrides: list[str]) -> DictConfig:
        """Compose one job; the errors are Hydra's own."""
        return self.load_configuration(config_name, overrides, RunMode.RUN, from_shell=False)

    def apply(self, config: DictConfig, overrides: Sequence[str]) -> None:
        """Set values in a tree that was loaded before; the errors are those of `load`."""
        try:
            self._apply_overrides_to_config([self._read(text) for text in overrides], config)
        except OmegaConfBaseException as error:
            raise ConfigCompositionException().with_traceback(error.__traceback__) from error

    def choice(self, config_name: str, overrides: list[str], group: str) -> str | None:
        """Return the option that the defaults list, with its experiment and overrides, chooses for a group."""
        defaults = self.compute_defaults_list(config_name, overrides, RunMode.RUN)
        return defaults.overrides.known_choices.get(group)

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[HydraOverride], CachingConfigRepository]:
        parsed = [self._read(text) for text in overrides]
        repository = CachingConfigRepository(self.repository)
        self._process_config_searchpath(config_name, parsed, repository)
        return parsed, repository

    def _read(self, spelled: str) -> HydraOverride:
        override = self._parsed.get(spelled) or of_text(spelled) or parse(spelled)
        override.config_loader = self
        return override

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Read a file again by the types of its place where the defaults list puts it elsewhere (`x@y`)."""
        source = next((source for source in repo.get_sources() if source.is_config(default.config_path or "")), None)
        if isinstance(source, FolderSource):
            source.place(default.config_path or "", default.package, repo)
        return super()._load_single_config(default, repo)

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        self.composed_from = list(defaults)
        return super()._compose_config_from_defaults_list(defaults=defaults, repo=repo)


def new_loader() -> RecordingLoader:
    """Return a loader over the current search path; makes the schema and the resolvers known first."""
    version.setbase(HYDRA_VERSION_BASE)
    register_schema()
    return RecordingLoader(create_config_search_path(f"pkg://{CONFIG_MODULE}"))


def register_schema() -> None:
    """Make the schema's defaults and the resolvers known to Hydra; safe to call again."""
    register_resolvers()
    ConfigStore.instance().store(name="schema", node=defaults_of(JobConfig), provider="primus_hydra")
