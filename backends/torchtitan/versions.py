"""Where torchtitan is, which version it has, and which versions we translate for; imports neither it nor torch.

Refuses a torchtitan that no translation exists for, and a torch that the torchtitan was not written for: torchtitan's
own metadata names no torch version, so pip installs pairs that fail in the middle of a run.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.patching.versions import satisfies

BACKEND_PATH = "BACKEND_PATH"
"""Environment variable that names a checkout."""
THIRDPARTY_DIR = "PRIMUS_THIRDPARTY_DIR"
"""Environment variable that names a folder of checkouts."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A range of torchtitan versions that one translation serves, and the torch that it needs."""

    name: str
    torchtitan: str
    torch: str
    tested: str
    translation: str

    @property
    def install_command(self) -> str:
        """The pip command that brings a supported pair."""
        return f'pip install "torchtitan=={self.tested}" "torch{self.torch}"'


RELEASES = (
    Release(
        name="0.3",
        torchtitan=">=0.3.0,<0.4",
        torch=">=2.14,<2.15",
        tested="0.3.0",
        translation="primus_hydra.backends.torchtitan.native_0_3",
    ),
)
"""Every supported release, newest last."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The torchtitan of this machine; `checkout` is None for the installed package."""

    version: str
    checkout: Path | None
    release: Release


def find_torchtitan(path: str | None, environ: Mapping[str, str]) -> Found:
    """Find torchtitan and check it and torch.

    Searched: `path` (backend.path), then BACKEND_PATH, both of which must hold a checkout if they are set; then the
    installed package; then third_party/torchtitan of this project; then $PRIMUS_THIRDPARTY_DIR/torchtitan.
    Raises UserError for a named path without a checkout, HostError if nothing is found or a version is not supported.
    """
    checkout = find_checkout(path, environ)
    version = checkout_version(checkout) if checkout else installed_version("torchtitan")
    if version is None:
        raise HostError(_missing())
    release = release_for(version)
    check_torch(release, torchtitan=version, torch=installed_version("torch"))
    return Found(version=version, checkout=checkout, release=release)


def find_checkout(path: str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the root of the checkout to use, or None if the installed package (or nothing) is to be used."""
    for source, text in (("backend.path", path), (BACKEND_PATH, environ.get(BACKEND_PATH))):
        if text:
            return _named_checkout(source, Path(text).expanduser())
    if installed_version("torchtitan") is not None:
        return None
    folders = [Path(__file__).resolve().parents[2] / "third_party"]
    if environ.get(THIRDPARTY_DIR):
        folders.append(Path(environ[THIRDPARTY_DIR]).expanduser())
    return next((folder / "torchtitan" for folder in folders if _is_checkout(folder / "torchtitan")), None)


def installed_version(package: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def checkout_version(root: Path) -> str | None:
    """Return the version that a checkout states in its version file or pyproject.toml, or None."""
    for name in ("assets/version.txt", "version.txt"):
        if (root / name).is_file():
            return (root / name).read_text(encoding="utf-8").strip()
    project = root / "pyproject.toml"
    stated = (
        re.search(r'^version\s*=\s*"([^"]+)"', project.read_text(encoding="utf-8"), re.M) if project.is_file() else None
    )
    return stated[1] if stated else None


def release_for(version: str) -> Release:
    """Return the release that serves a torchtitan version; raises HostError if none does."""
    release = next((release for release in RELEASES if _fits(version, release.torchtitan)), None)
    if release is None:
        newest, supported = RELEASES[-1], " or ".join(release.torchtitan for release in RELEASES)
        raise HostError(
            Problem(
                key="backend",
                what=f"torchtitan {version} (with torch {installed_version('torch') or 'missing'}) is not supported; "
                f"supported is torchtitan {supported}",
                hint=newest.install_command,
            )
        )
    return release


def check_torch(release: Release, *, torchtitan: str, torch: str | None) -> None:
    """Raise HostError if torch is missing or is not one that this torchtitan was written for."""
    if torch is None or not _fits(torch, release.torch):
        raise HostError(
            Problem(
                key="backend",
                what=f"torchtitan {torchtitan} needs torch {release.torch}, and torch {torch or 'is missing'}"
                f"{' is installed' if torch else ''}",
                hint=release.install_command,
            )
        )


def _fits(version: str, specifiers: str) -> bool:
    try:
        Version(version)
    except InvalidVersion:
        return False
    return satisfies(version, SpecifierSet(specifiers))


def _named_checkout(source: str, root: Path) -> Path:
    if not _is_checkout(root):
        raise UserError(
            Problem(
                key=source,
                what=f"{root} is not a checkout of torchtitan (it holds no torchtitan/trainer.py)",
                hint="name the folder that holds the package folder torchtitan/, or unset it to use the installed one",
            )
        )
    return root.resolve()


def _is_checkout(root: Path) -> bool:
    return (root / "torchtitan" / "trainer.py").is_file()


def _missing() -> Problem:
    return Problem(
        key="backend",
        what="torchtitan is not installed, and no checkout was found or its version is not stated",
        hint=f"{RELEASES[-1].install_command}, or set backend.path",
    )
