"""Where Megatron is, which version it has, and which versions we train with; imports neither it nor torch.

Megatron comes as the package megatron-core or as a checkout of Megatron-LM, whose own `package_info.py` states its
version. Refuses versions that no release of ours serves, and a torch older than megatron-core asks for.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.patching.versions import satisfies

BACKEND_PATH = "BACKEND_PATH"
"""Environment variable that names a checkout."""
THIRDPARTY_DIR = "PRIMUS_THIRDPARTY_DIR"
"""Environment variable that names a folder of checkouts."""
TORCH = ">=2.6"
"""What megatron-core asks of torch in every supported version."""
PACKAGE = "megatron-core"

_VERSION_FILE = Path("megatron", "core", "package_info.py")
_FIRST_NEWER_PYTHON = (3, 12)


@dataclass(frozen=True, kw_only=True)
class Release:
    """A range of megatron-core versions that are driven alike; `tested` is the one that our tests run."""

    name: str
    megatron: str
    tested: str
    python: tuple[int, int]

    @property
    def install_command(self) -> str:
        """The pip command that brings the tested version."""
        return f'pip install "{PACKAGE}=={self.tested}"'


RELEASES = (
    Release(name="0.16", megatron=">=0.16.1,<0.17", tested="0.16.1", python=(3, 10)),
    Release(name="0.19", megatron=">=0.17,<0.20", tested="0.19.2", python=_FIRST_NEWER_PYTHON),
)
"""Every supported release, newest last. 0.16 is the last that pip installs under Python 3.11."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The Megatron of this machine; `checkout` is None for the installed package."""

    version: str
    checkout: Path | None
    release: Release


def find_megatron(path: str | None, environ: Mapping[str, str]) -> Found:
    """Find Megatron and check it and torch.

    Searched: `path` (backend.path), then BACKEND_PATH, both of which must hold a checkout if they are set; then the
    installed package; then third_party/megatron of this project; then $PRIMUS_THIRDPARTY_DIR/Megatron-LM.
    Raises UserError for a named path without a checkout, HostError if nothing is found or a version is not supported.
    """
    checkout = find_checkout(path, environ)
    version = checkout_version(checkout) if checkout else installed_version(PACKAGE)
    if version is None:
        raise HostError(_missing())
    release = release_for(version)
    check_torch(version, installed_version("torch"))
    return Found(version=version, checkout=checkout, release=release)


def find_checkout(path: str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the root of the checkout to use, or None if the installed package (or nothing) is to be used."""
    for source, text in (("backend.path", path), (BACKEND_PATH, environ.get(BACKEND_PATH))):
        if text:
            return _named_checkout(source, Path(text).expanduser())
    if installed_version(PACKAGE) is not None:
        return None
    folders = [Path(__file__).resolve().parents[2] / "third_party" / "megatron"]
    if environ.get(THIRDPARTY_DIR):
        folders.append(Path(environ[THIRDPARTY_DIR]).expanduser() / "Megatron-LM")
    return next((folder for folder in folders if is_checkout(folder)), None)


def is_checkout(root: Path) -> bool:
    """Whether `root` holds the package folder megatron/ with its core."""
    return (root / _VERSION_FILE).is_file()


def installed_version(package: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def checkout_version(root: Path) -> str | None:
    """Return the version that a checkout states in megatron/core/package_info.py, or None if it cannot be read."""
    text = (root / _VERSION_FILE).read_text(encoding="utf-8")
    stated = dict(re.findall(r"^(MAJOR|MINOR|PATCH|PRE_RELEASE)\s*=\s*(\d+|'[^']*'|\"[^\"]*\")", text, re.M))
    if not {"MAJOR", "MINOR", "PATCH"} <= stated.keys():
        return None
    numbers = ".".join(stated[part] for part in ("MAJOR", "MINOR", "PATCH"))
    return f"{numbers}{ast.literal_eval(stated.get('PRE_RELEASE', repr('')))}"


def release_for(version: str) -> Release:
    """Return the release that serves a megatron-core version; raises HostError if none does."""
    release = next((release for release in RELEASES if _fits(version, release.megatron)), None)
    if release is None:
        raise HostError(
            Problem(
                key="backend",
                what=f"{PACKAGE} {version} is not supported; supported is {RELEASES[0].megatron.split(',')[0]}"
                f",{RELEASES[-1].megatron.split(',')[-1]}",
                hint=installable().install_command,
            )
        )
    return release


def installable() -> Release:
    """Return the newest release that pip installs under this Python."""
    return next(release for release in reversed(RELEASES) if sys.version_info[:2] >= release.python)


def check_torch(megatron: str, torch: str | None) -> None:
    """Raise HostError if torch is missing or older than megatron-core asks for."""
    if torch is None or not _fits(torch, TORCH):
        found = f"torch {torch} is installed" if torch else "torch is missing"
        what = f"{PACKAGE} {megatron} needs torch {TORCH}, and {found}"
        raise HostError(Problem(key="backend", what=what, hint=f'pip install "torch{TORCH}"'))


def _fits(version: str, specifiers: str) -> bool:
    try:
        return satisfies(version, SpecifierSet(specifiers))
    except InvalidVersion:
        return False


def _named_checkout(source: str, root: Path) -> Path:
    if not is_checkout(root):
        raise UserError(
            Problem(
                key=source,
                what=f"{root} is not a checkout of Megatron-LM (it holds no {_VERSION_FILE})",
                hint="name the folder that holds the package folder megatron/, or unset it to use the installed one",
            )
        )
    return root.resolve()


def _missing() -> Problem:
    return Problem(
        key="backend",
        what=f"{PACKAGE} is not installed, and no checkout was found or its version is not stated",
        hint=f"{installable().install_command}, or set backend.path",
    )
