"""Which versions a patch is for: PEP 440 specifiers about the backend or torch, and commit patterns of a checkout.

`>=0.3,<0.4` is about the backend, `torch<2.14` about torch, `commit:73a0e69*` about the backend's git commit.
A pre-release counts as the release that it leads to, because it already has that release's code: otherwise PEP 440 puts
`0.3.0.dev2` outside both `<0.3` and `>=0.3`, and no patch would fit a nightly build. A specifier that itself names a
pre-release is compared exactly. Refuses, when it is parsed, a rule that can never be checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_NAMED = re.compile(r"\s*(?P<name>[A-Za-z][A-Za-z0-9._-]*)?\s*(?P<specifiers>.*?)\s*")
_COMMIT = re.compile(r"[0-9a-f*?]+")
_COMMIT_PREFIX = "commit:"
_FULL_COMMIT = 40


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What is installed: the backend (and the commit of a checkout) and torch; None is absent or unknown."""

    backend: str
    backend_version: str | None
    backend_commit: str | None = None
    torch_version: str | None = None


@dataclass(frozen=True, kw_only=True)
class Match:
    """Whether a rule holds, with the comparison in words."""

    holds: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class SpecifierRule:
    """PEP 440 specifiers, all of which must hold, about the backend or about torch."""

    about_torch: bool
    specifiers: SpecifierSet
    text: str

    def __str__(self) -> str:
        return f"{'torch' if self.about_torch else ''}{self.text}"

    def check(self, installed: Installed) -> Match:
        """Compare with the installed version."""
        name = "torch" if self.about_torch else installed.backend
        version = installed.torch_version if self.about_torch else installed.backend_version
        if version is None:
            return Match(holds=False, reason=f"{name} is not installed, the patch is for {self.text}")
        try:
            holds = satisfies(version, self.specifiers)
        except InvalidVersion:
            return Match(holds=False, reason=f"{name} {version!r} is not a PEP 440 version")
        return Match(holds=holds, reason=f"{name} {version} is {'' if holds else 'not '}in {self.text}")


@dataclass(frozen=True, kw_only=True)
class CommitRule:
    """A pattern over the 40 hex digits of the backend's commit; without a wildcard it is a prefix."""

    pattern: str

    def __str__(self) -> str:
        return f"{_COMMIT_PREFIX}{self.pattern}"

    def check(self, installed: Installed) -> Match:
        """Compare with the commit of the checkout."""
        commit = installed.backend_commit
        if commit is None:
            return Match(holds=False, reason=f"{installed.backend} is not from a known commit")
        glob = self.pattern if set("*?") & set(self.pattern) else f"{self.pattern}*"
        holds = fnmatchcase(commit.lower(), glob)
        return Match(holds=holds, reason=f"commit {commit[:10]} is {'' if holds else 'not '}{self.pattern}")


VersionRule = SpecifierRule | CommitRule


def parse_rules(versions: str | Sequence[str] | None, *, backend: str | Sequence[str]) -> tuple[VersionRule, ...]:
    """Parse what a patch gives as `versions`; no rule at all means every version. Raises ValueError."""
    if versions is None:
        return ()
    texts = [versions] if isinstance(versions, str) else list(versions)
    if not texts:
        raise ValueError("an empty list of versions fits nothing; leave `versions` out to fit every version")
    return tuple(parse_rule(text, backend=backend) for text in texts)


def parse_rule(text: str, *, backend: str | Sequence[str]) -> VersionRule:
    """Parse one rule; a backend may be named in it instead of being left out. Raises ValueError."""
    if text.startswith(_COMMIT_PREFIX):
        return _parse_commit(text.removeprefix(_COMMIT_PREFIX))
    backends = (backend,) if isinstance(backend, str) else tuple(backend)
    found = _NAMED.fullmatch(text)
    name, specifiers = (found["name"], found["specifiers"]) if found else (None, "")
    if not specifiers:
        raise ValueError(f"version rule {text!r} has no specifier such as >=0.3,<0.4")
    if name not in (None, "torch", *backends):
        known = ", ".join(repr(backend) for backend in backends)
        raise ValueError(f"version rule {text!r} is about {name!r}; a rule is about {known} or 'torch'")
    try:
        return SpecifierRule(about_torch=name == "torch", specifiers=SpecifierSet(specifiers), text=specifiers)
    except InvalidSpecifier as error:
        raise ValueError(f"version rule {text!r} cannot be read: {error}") from error


def any_match(rules: Sequence[VersionRule], installed: Installed) -> Match:
    """Check rules of which one is enough; without rules every version fits."""
    if not rules:
        return Match(holds=True, reason="every version")
    matches = [rule.check(installed) for rule in rules]
    held = next((match for match in matches if match.holds), None)
    return held or Match(holds=False, reason="; ".join(match.reason for match in matches))


def satisfies(version: str, specifiers: SpecifierSet) -> bool:
    """Whether a version fits all specifiers, a pre-release standing for its release. Raises InvalidVersion."""
    parsed = Version(version)
    return all(_fits(parsed, specifier) for specifier in specifiers)


def _fits(version: Version, specifier: Specifier) -> bool:
    if version.is_prerelease and not _names_prerelease(specifier):
        version = Version(version.base_version)
    return specifier.contains(version, prereleases=True)


def _names_prerelease(specifier: Specifier) -> bool:
    if specifier.operator == "===":
        return True
    return Version(specifier.version.removesuffix(".*")).is_prerelease


def _parse_commit(pattern: str) -> CommitRule:
    if not _COMMIT.fullmatch(pattern) or len(pattern) > _FULL_COMMIT:
        raise ValueError(f"commit pattern {pattern!r} must be lower-case hex digits, with * and ? as wildcards")
    return CommitRule(pattern=pattern)
