"""Where `megatron.training` is, which version it has, and whether it belongs to the `megatron.core` that it would meet.

`megatron` has no file of its own: Python joins every folder of this name on `sys.path`, so the core of one version and
the training of another come together without a word. Refused: a megatron-core without `megatron.training`, versions
that nothing here was tried with, and a mixture of two places. Imports neither torch nor Megatron.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet

from primus_hydra.backends.megatron.versions import PACKAGE, Found, checkout_version, find_megatron, is_checkout
from primus_hydra.errors import HostError, Problem
from primus_hydra.patching.versions import satisfies

_NEEDS = "megatron/training/training.py"
_PARTS = ("megatron.core", "megatron.training")


@dataclass(frozen=True, kw_only=True)
class TrainingRelease:
    """A range of versions of `megatron.training` whose arguments one data file describes."""

    name: str
    megatron: str
    tested: str


RELEASES = (TrainingRelease(name="0.19", megatron=">=0.19,<0.20", tested="0.19.2"),)
"""Every supported release, newest last."""
WAYS_OUT = (
    f'use Python 3.12 or later with pip install "{PACKAGE}=={RELEASES[-1].tested}", or name a checkout of Megatron-LM '
    "with backend.path; backend=megatron trains with megatron-core alone"
)


def find_training(path: str | None, environ: Mapping[str, str]) -> Found:
    """Find Megatron as `backend=megatron` does, and make sure that its training is there and belongs to it.

    Raises UserError for a named path without a checkout, HostError for anything missing, unsupported or mixed.
    """
    found = find_megatron(path, environ)
    places = _in_checkout(found.checkout) if found.checkout else _installed()
    _require_training(found, places)
    require_one_place(places)
    _require_version(found, places["megatron.core"])
    release_for(found.version)
    return found


def release_for(version: str) -> TrainingRelease:
    """Return the release that serves a version; raises HostError if none does."""
    release = next((release for release in RELEASES if satisfies(version, SpecifierSet(release.megatron))), None)
    if release is None:
        supported = " or ".join(release.megatron for release in RELEASES)
        what = f"megatron.training {version} is not supported; supported is {supported}"
        raise HostError(Problem(key="backend", what=what, hint=WAYS_OUT))
    return release


def require_one_place(places: Mapping[str, Path]) -> None:
    """Raise HostError unless every part of Megatron lies in one folder; `places` gives the folder of each part."""
    if len({place.resolve().parent for place in places.values()}) > 1:
        where = " and ".join(f"{part} from {place}" for part, place in places.items())
        what = f"this would mix two Megatrons: {where}"
        hint = (
            "name a whole checkout (megatron/core and megatron/training) with backend.path, or unset it and PYTHONPATH"
        )
        raise HostError(Problem(key="backend", what=what, hint=hint))


def _require_version(found: Found, core: Path) -> None:
    """Raise HostError if Python would import another Megatron than the one that is installed."""
    root = core.parent.parent
    stated = checkout_version(root) if is_checkout(root) else None
    if stated is not None and stated != found.version:
        what = f"{PACKAGE} {found.version} is installed, but Python would import {stated} from {core}"
        raise HostError(Problem(key="backend", what=what, hint=f"name it: backend.path={root}, or unset PYTHONPATH"))


def _in_checkout(root: Path) -> dict[str, Path]:
    """Return where the parts would come from with `root` first on `sys.path`."""
    there = {part: root.joinpath(*part.split(".")) for part in _PARTS}
    elsewhere = _installed()
    return {part: place if place.is_dir() else elsewhere.get(part, place) for part, place in there.items()}


def _installed() -> dict[str, Path]:
    """Return the folders of the parts that can be imported now; looking for them imports only the empty `megatron`."""
    places = {}
    for part in _PARTS:
        try:
            spec = importlib.util.find_spec(part)
        except ModuleNotFoundError:
            spec = None
        if spec is not None and spec.origin:
            places[part] = Path(spec.origin).parent
    return places


def _require_training(found: Found, places: Mapping[str, Path]) -> None:
    folder = places.get("megatron.training")
    if folder is not None and (folder / "training.py").is_file():
        return
    where = f"the checkout {found.checkout}" if found.checkout else f"{PACKAGE} {found.version}, which is installed,"
    what = f"{where} holds no {_NEEDS} (packages have it since 0.17)"
    raise HostError(Problem(key="backend", what=what, hint=WAYS_OUT))
