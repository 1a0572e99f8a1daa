"""`experiment=PATH`: an experiment file anywhere on disk, offered to Hydra as if it lay in a group folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from primus_hydra.config.provenance import Source, leaf_lines
from primus_hydra.errors import Problem


@dataclass(frozen=True, kw_only=True)
class ExperimentFile:
    """What taking an experiment file gave: the sources of its leaves, or what is wrong with it."""

    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def take_experiment_file(overrides: Sequence[str]) -> tuple[list[str], ExperimentFile]:
    """Replace `experiment=some/file.yaml` by the name under which the file was stored; other overrides pass."""
    taken = ExperimentFile()
    result: list[str] = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key.lstrip("+") == "experiment" and value.endswith((".yaml", ".yml")):
            taken = _take(Path(value).expanduser())
            if not taken.problems:
                result.append(f"experiment={_stored_name(Path(value).expanduser())}")
        else:
            result.append(override)
    return result, taken


def _stored_name(file: Path) -> str:
    return f"{file.stem}-{blake2b(str(file.absolute()).encode(), digest_size=3).hexdigest()}"


def _take(file: Path) -> ExperimentFile:
    try:
        text = file.read_text(encoding="utf-8-sig")
        config = OmegaConf.create(text)
    except OSError as error:
        return _wrong(file, error.strerror or str(error))
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        return _wrong(
            file, f"not valid YAML: {getattr(error, 'problem', error)}", None if mark is None else mark.line + 1
        )
    if not OmegaConf.is_dict(config) or not config:
        return _wrong(file, "is empty: an experiment is a group of keys, or a defaults list with overrides")
    ConfigStore.instance().store(
        group="experiment", name=_stored_name(file), node=config, package="_global_", provider=str(file)
    )
    return ExperimentFile(
        sources={
            leaf: Source(kind="file", text=f"{file}:{line}", file=str(file), line=line)
            for leaf, line in leaf_lines(text)
        }
    )


def _wrong(file: Path, what: str, line: int | None = None) -> ExperimentFile:
    where = str(file) if line is None else f"{file}:{line}"
    return ExperimentFile(problems=[Problem(key="experiment", what=what, where=where)])
