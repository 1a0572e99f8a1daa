"""What was read, whatever it was written in: the trainer's keys, and what is said around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from primus_hydra.migrate.given import Given
from primus_hydra.migrate.yaml_file import Remark

Kind = Literal["primus", "runner", "megatron", "torchtitan"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe to migrate.

    `keys` are the trainer's, in the framework's names. `around` are the keys of the file beside them, `environment`
    the variables it sets, `preset` the model preset or flavour that it names. `complete`: what is not given has the
    framework's own default; not so where presets are missing. `lost` are keys that another one kept from counting.
    """

    kind: Kind
    title: str
    framework: str | None
    keys: dict[str, Given]
    around: dict[str, Given] = field(default_factory=dict)
    environment: dict[str, Given] = field(default_factory=dict)
    lost: dict[str, Given] = field(default_factory=dict)
    preset: str | None = None
    complete: bool = True
    remarks: tuple[Remark, ...] = ()
    notes: tuple[str, ...] = ()
