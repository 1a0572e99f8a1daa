"""`platform=auto`, found in the choices of the defaults list and replaced by what this machine is."""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.loader import RecordingLoader
from primus_hydra.config.provenance import source_folders
from primus_hydra.config.search import CONFIG_NAME, current_user_dirs
from primus_hydra.host.detect import CPU, Detection, detect_platform, platform_names

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """The overrides with `auto` replaced, the keys that the machine set, and what is worth telling of it.

    `detected`: the platform is that of this machine.
    """

    overrides: list[str]
    keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    detected: bool = False


def expand_auto(loader: RecordingLoader, config_name: str, overrides: list[str]) -> Expanded:
    """Add the detected platform to the overrides when the platform chosen is `auto`.

    A GPU that no platform file knows is left alone: the job runs on the CPU, and a note says how to take the GPU in.
    """
    choice = _plain_choice(config_name, overrides) or loader.choice(config_name, overrides, "platform")
    if choice != AUTO:
        return Expanded(overrides=overrides)
    detection = detect_platform(platform_names(source_folders(loader.repository)))
    found = _machine(detection)
    # In front of what the user typed, so that a count of his own wins; the group may stand anywhere.
    return Expanded(
        overrides=[*found, *(text for text in overrides if text != f"platform={AUTO}")],
        keys=tuple(text.partition("=")[0] for text in found[1:]),
        notes=_notes(detection),
        detected=True,
    )


def _machine(detection: Detection) -> list[str]:
    if detection.platform is None or detection.gpu_count == 0:
        return [f"platform={CPU}"]
    return [f"platform={detection.platform}", f"platform.gpus_per_node={detection.gpu_count}"]


def _notes(detection: Detection) -> tuple[str, ...]:
    problem = detection.problem
    if problem is None:
        return detection.notes
    return (f"training on the CPU: {problem.what}", problem.hint or "", *detection.notes)


def _plain_choice(config_name: str, overrides: list[str]) -> str | None:
    """Read the choice off the command line, or know the default where no experiment or folder can have changed it.

    Asking Hydra for its defaults list costs as much as half a composition.
    """
    typed = [override.partition("=")[2] for override in overrides if override.startswith("platform=")]
    if typed:
        return typed[-1]
    changed = any(override.startswith(("experiment=", "hydra.searchpath")) for override in overrides)
    return None if changed or config_name != CONFIG_NAME or current_user_dirs() else AUTO
