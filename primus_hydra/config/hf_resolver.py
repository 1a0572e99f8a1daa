"""The `${hf:KEY}` resolver: what the config.json at `model.path` says of a key of the model.

The file of the choice `model=hf` is made of it, so that any key can be overridden as with every other model. A file
that cannot be used is told once, under `model.path`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from primus_hydra.config.hf_model import KEY, read_model
from primus_hydra.config.schema.model import ModelConfig, RopeScaling
from primus_hydra.errors import Problem

_ROPE: Final = "rope_scaling"
_DEFAULTS: Final[Mapping[str, Any]] = {
    **{item.name: item.default for item in fields(ModelConfig)},
    **{f"{_ROPE}.{item.name}": item.default for item in fields(RopeScaling)},
}


class UnusableHfModelError(Exception):
    """The config.json cannot be used; `problems` say why, and are empty where another key's problem says it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("the config.json at model.path cannot be used")
        self.problems = problems


def resolve_hf(key: str, *, _root_: DictConfig) -> Any:
    """Return the value of a key of the model, by its name below `model`; raises UnusableHfModelError."""
    found = read_model(_path(_root_))
    if found.problems:
        raise UnusableHfModelError(*found.problems)
    return found.keys.get(key, _DEFAULTS[key])


def _path(root: DictConfig) -> Path:
    try:
        path = OmegaConf.select(root, KEY, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UnusableHfModelError from error  # told where the key itself is resolved
    if not path:
        hint = "give the folder of a Hugging Face model: model.path=DIR"
        raise UnusableHfModelError(Problem(key=KEY, what="model=hf reads it, and it is not set", hint=hint))
    return Path(str(path)).expanduser()
