"""Which packages are installed, and which this project wants, from installed metadata alone: nothing is imported."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from primus_hydra.errors import HostError, Problem

PROJECT = "primus-hydra"
_GIT_TIMEOUT_S = 10

Status = Literal["ok", "missing", "wrong"]


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """One package that is wanted: `wanted` is a version specifier, empty for any version."""

    name: str
    wanted: str
    installed: str | None
    status: Status


def installed_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def installed_commit(name: str) -> str | None:
    """Commit that an installed distribution was built from, where pip recorded one (`pip install git+...`)."""
    try:
        text = metadata.distribution(name).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    found = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    return found if isinstance(found, str) else None


def checkout_commit(path: Path) -> str | None:
    """Commit of a git checkout, or None where `path` is none or git is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(path), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def project_requirements() -> list[Requirement]:
    """What this project's own metadata asks for, extras included; raises HostError if it is not installed."""
    try:
        lines = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        raise HostError(
            Problem(what=f"{PROJECT} is not installed, only imported", hint="pip install -e . in its checkout")
        ) from None
    return [Requirement(line) for line in lines]


def project_extras() -> list[str]:
    """The names of this project's extras, as its metadata orders them."""
    try:
        return metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []


def requirements_of(requirements: Iterable[Requirement], extra: str | None) -> list[Requirement]:
    """Pick what an extra adds, or with None what is always wanted; an extra made of extras is opened."""
    everything = list(requirements)
    opened: list[Requirement] = []
    for requirement in everything:
        if not _asked_for(requirement, extra):
            continue
        if canonicalize_name(requirement.name) == PROJECT:
            inner = (requirements_of(everything, name) for name in sorted(requirement.extras))
            opened += [item for group in inner for item in group]
        else:
            opened.append(requirement)
    return opened


def dependencies_of(
    requirements: Iterable[Requirement],
    extra: str | None,
    *,
    installed: Callable[[str], str | None] = installed_version,
) -> list[Dependency]:
    """Compare what an extra wants with what is installed."""
    return [_compare(item, installed(item.name)) for item in requirements_of(requirements, extra)]


def _asked_for(requirement: Requirement, extra: str | None) -> bool:
    always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if extra is None or always:
        return always and extra is None
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def _compare(requirement: Requirement, version: str | None) -> Dependency:
    status: Status = "missing" if version is None else "ok" if _fits(requirement, version) else "wrong"
    # Metadata sorts the specifiers; the lower bound reads better first.
    wanted = ",".join(sorted(map(str, requirement.specifier), key=lambda text: text.startswith("<")))
    return Dependency(name=requirement.name, wanted=wanted, installed=version, status=status)


def _fits(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
