"""Puts the user's configuration folders in front of ours. It acts in our own command only, not in other Hydra apps."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class UserConfigFolders(SearchPathPlugin):
    """Prepend `--config-dir` and $PRIMUS_CONF to the search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Insert each folder before this project's groups, the first one in front."""
        from primus_hydra.config.search import CONFIG_MODULE, current_user_dirs

        if not any(element.path == f"pkg://{CONFIG_MODULE}" for element in search_path.get_path()):
            return
        for folder in reversed(current_user_dirs()):
            search_path.prepend(provider="user", path=f"file://{folder}")
