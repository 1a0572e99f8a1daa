"""A small configuration of toy classes, with one field of every kind that a backend's classes have."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from primus_hydra.native.targets import Targets

TARGETS = Targets(backend="toy", package="tests", hint="name a dataclass")


class Colour(enum.Enum):
    red = 1
    green = 2


@dataclass(kw_only=True)
class Motor:
    """Its fields follow from each other when it is built."""

    power: float = 1.0
    torque: Optional[float] = None  # noqa: UP045
    wheels: int = 4

    def __post_init__(self) -> None:
        if self.power < 0:
            raise ValueError("power must not be negative")
        assert self.wheels != 13
        self.torque = self.power / 2 if self.torque is None else self.torque


@dataclass(kw_only=True)
class BigMotor(Motor):
    turbo: bool = False


@dataclass(kw_only=True)
class Body:
    colour: Colour = Colour.red
    size: int = None  # type: ignore[assignment]
    shape: Literal["box", "egg"] = "box"
    doors: list[float] = field(default_factory=list)
    window: tuple[int, int] | None = None
    names: dict[str, float] = field(default_factory=dict)
    scope: str | Colour | list[Colour] = "all"
    paint: Callable[[], None] | None = None
    layout: str | list[Any] | Motor | None = None
    _hidden: int = 0


@dataclass(kw_only=True)
class Car:
    motor: Motor
    body: Body
    spare: Motor | None = None
    on_start: Callable[[], None]
    built: int = dataclasses.field(init=False, default=0)


def start() -> None:
    """Something that no text can name."""


def car() -> Car:
    return Car(motor=Motor(power=4.0), body=Body(), on_start=start)
