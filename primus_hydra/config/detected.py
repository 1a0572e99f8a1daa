"""`platform=auto`, found in the choices of the defaults list and replaced by what this machine is."""

from __future__ import annotations

from primus_hydra.config.loader import RecordingLoader
from primus_hydra.config.provenance import source_folders
from primus_hydra.config.search import CONFIG_NAME, current_user_dirs
from primus_hydra.host.detect import detected_platform


def expand_auto(loader: RecordingLoader, config_name: str, overrides: list[str]) -> list[str]:
    """Append `platform=NAME` when the platform chosen is `auto`; raises HostError for a GPU that no file knows."""
    choice = _plain_choice(config_name, overrides) or loader.choice(config_name, overrides, "platform")
    return [*overrides, f"platform={detected_platform(source_folders(loader.repository))}"] if choice == "auto" else overrides


def _plain_choice(config_name: str, overrides: list[str]) -> str | None:
    """Read the choice off the command line, or know the default where no experiment or folder can have changed it.

    Asking Hydra for its defaults list costs as much as half a composition.
    """
    typed = [override.partition("=")[2] for override in overrides if override.startswith("platform=")]
    if typed:
        return typed[-1]
    changed = any(override.startswith(("experiment=", "hydra.searchpath")) for override in overrides)
    return None if changed or config_name != CONFIG_NAME or current_user_dirs() else "auto"
