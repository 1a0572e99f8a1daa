"""What Hydra says of a composition that failed, in this project's form: what is wrong, where, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

import primus_hydra
from primus_hydra.config.files import default_line
from primus_hydra.config.groups import Groups
from primus_hydra.config.sources import FileBook
from primus_hydra.config.suggest import nearest
from primus_hydra.errors import Problem

_IN = re.compile(r"^In '(?P<file>[^']+)':?\s*(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Translator:
    """Translates one error, with the groups and files of the composition at hand."""

    groups: Groups
    book: FileBook

    def problem(self, error: Exception) -> Problem:
        """Return the problem behind an error of Hydra or OmegaConf."""
        said = _said(error)
        match = _IN.match(said)
        where, rest = (self.file(match["file"]), match["rest"].strip()) if match else (None, said)
        for pattern, translate in self._patterns():
            found = pattern.search(rest)
            if found:
                return translate(found, self._named(found["name"]) or where)
        line, *more = [text.strip() for text in rest.splitlines() if text.strip()] or [type(error).__name__]
        kept = [text for text in more if not text.startswith(("See http", "Set the env", "Search path", "provider="))]
        return Problem(what=line, where=where, hint="; ".join(kept[:3]) or None)

    def file(self, config_path: str) -> str:
        """Return the file of a config as a person finds it."""
        ending = f"/{config_path}.yaml"
        known = next((str(file) for file in self.book.texts if str(file).endswith(ending)), None)
        return known or f"{config_path}.yaml"

    def _named(self, name: str) -> str | None:
        """Return the line of a file, a user's first, whose defaults list names a group or option."""
        plain = name.strip().rpartition("/")[2]
        for file, text in self.book.texts.items():
            line = None if text.root is None else default_line(text.root, plain)
            if line is not None and self._is_users(file):
                return f"{file}:{line}"
        return None

    def _is_users(self, file: Path) -> bool:
        return not file.is_relative_to(Path(primus_hydra.__file__).parent)

    def _patterns(self) -> Sequence[tuple[re.Pattern[str], Callable[[re.Match[str], str | None], Problem]]]:
        return (
            (re.compile(r"Could not find '(?P<name>[^']+)'"), self._no_config),
            (re.compile(r"Could not load '(?P<name>[^']+)'"), self._no_config),
            (re.compile(r"Could not override '(?P<name>[^']+)'. No match"), self._no_group),
            (re.compile(r"Could not override '(?P<name>[^']+)'"), self._no_key),
            (re.compile(r"Could not delete '(?P<name>[^']+)'"), self._not_chosen),
            (re.compile(r"Key '(?P<name>[^']+)' is not in struct"), self._no_key),
            (re.compile(r"^(?P<name>\S+) appears more than once in the final"), self._twice),
            (re.compile(r"Multiple values for (?P<name>[^.]+)\. .*'(?P<fix>override [^']+)'"), self._needs_override),
            (re.compile(r"You must specify '(?P<name>[^']+)'"), self._must_choose),
            (re.compile(r"Override '(?P<name>[^']+)' is defined before"), self._override_first),
            (re.compile(r"Invalid defaults list in '(?P<name>[^']+)'"), self._not_a_list),
        )

    def _no_config(self, match: re.Match[str], where: str | None) -> Problem:
        group, _, option = match["name"].rpartition("/")
        options = self.groups.options(group) if group and self.groups.has(group) else []
        unseen = self.groups.unseen(group, option)
        if unseen is not None:
            hint: str | None = f"{unseen} exists, but only files that end in .yaml are read: rename it"
        elif options:
            near = nearest(option, options)
            hint = f"did you mean {near[0]}?" if near else f"options of {group}: {', '.join(options)}"
        else:
            near = nearest(group or option, self.groups.names())
            hint = f"did you mean {near[0]}?" if near else f"groups: {', '.join(self.groups.names())}"
        return Problem(key="defaults", what=f"there is no {match['name']}.yaml", where=where, hint=hint)

    def _no_group(self, match: re.Match[str], where: str | None) -> Problem:
        near = nearest(match["name"], self.groups.names())
        hint = (
            f"did you mean {' or '.join(f'`override /{name}: ...`' for name in near)}?"
            if near
            else f"groups: {', '.join(self.groups.names())}"
        )
        what = f"overrides the group {match['name']}, which no defaults list names before"
        return Problem(key="defaults", what=what, where=where, hint=hint)

    def _no_key(self, match: re.Match[str], where: str | None) -> Problem:
        hint = "--cfg hydra shows Hydra's own keys" if match["name"].startswith("hydra") else None
        return Problem(key=match["name"], what="there is no such key", where=where, hint=hint)

    def _not_chosen(self, match: re.Match[str], where: str | None) -> Problem:
        name, _, option = match["name"].partition("=")
        what = f"cannot be removed: {option} is not what is chosen" if option else "cannot be removed: it is not chosen"
        return Problem(key=name, what=what, where=where, hint="leave the override out")

    def _twice(self, match: re.Match[str], where: str | None) -> Problem:
        hint = "take it in once, or give each a place of its own: NAME@PACKAGE"
        return Problem(key="defaults", what=f"{match['name']} is taken in twice", where=where, hint=hint)

    def _needs_override(self, match: re.Match[str], where: str | None) -> Problem:
        name = match["name"].strip()
        hint = f"write `- override /{name.lstrip('/')}: ...` at the end of the defaults list"
        return Problem(key="defaults", what=f"the group {name} is chosen a second time", where=where, hint=hint)

    def _must_choose(self, match: re.Match[str], where: str | None) -> Problem:
        name = match["name"]
        options = ", ".join(self.groups.options(name))
        return Problem(key=name, what="needs a choice", where=where, hint=f"choose one: {name}=... of {options}")

    def _override_first(self, match: re.Match[str], where: str | None) -> Problem:
        hint = "move the `override` lines to the end of the defaults list"
        return Problem(key="defaults", what=f"`override {match['name']}` stands too early", where=where, hint=hint)

    def _not_a_list(self, match: re.Match[str], where: str | None) -> Problem:
        del where
        hint = "write `defaults:`, and below it `  - /model: NAME`"
        return Problem(key="defaults", what="must be a list", where=self.file(match["name"]), hint=hint)


def circle_problem(book: FileBook) -> Problem:
    """Name the files whose defaults lists lead back to each other."""
    circle = next((found for file in book.texts if (found := _circle(file, book, ()))), [])
    names = " -> ".join(str(file) for file in circle)
    what = "the defaults lists form a circle" + (f": {names}" if names else "")
    return Problem(key="defaults", what=what, where=str(circle[0]) if circle else None, hint="remove one of them")


def _circle(file: Path, book: FileBook, above: tuple[Path, ...]) -> list[Path]:
    if file in above:
        return [*above[above.index(file) :], file]
    for named in _named_by(file, book):
        found = _circle(named, book, (*above, file))
        if found:
            return found
    return []


def _named_by(file: Path, book: FileBook) -> list[Path]:
    """Return the read files that a file's defaults list may mean."""
    data = OmegaConf.create(book.texts[file].data("_global_"))
    assert isinstance(data, DictConfig)
    found = []
    for item in OmegaConf.to_container(data).get("defaults", []):  # type: ignore[union-attr]
        names = [item] if isinstance(item, str) else [f"{key}/{value}" for key, value in item.items()]
        for name in names:
            path = name.split(" ")[-1].split("@")[0].lstrip("/")
            found += [other for other in book.texts if str(other).endswith(f"/{path}.yaml")]
            found += [other for other in book.texts if other == file.parent / f"{path}.yaml"]
    return list(dict.fromkeys(found))


def _said(error: BaseException) -> str:
    """Return what an error or the one behind it says."""
    texts = [str(error), str(error.__cause__ or "")]
    return next((text for text in texts if text.strip()), type(error).__name__)
