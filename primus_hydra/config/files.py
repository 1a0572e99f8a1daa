"""A configuration file as a person wrote it: its text, its package, its YAML nodes, and everything wrong with it.

PyYAML stops at the first fault and reads `00123` as a number, `12e4567` as infinity and `on` as true. Here all faults
of a file are found at once, and a plain scalar is read by the type of its key in the schema: text stays as written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf._utils import get_yaml_loader

from primus_hydra.config.keys import items_of, key_type, member_of, wants_raw_text
from primus_hydra.errors import Problem

_TAGS = "tag:yaml.org,2002:"
_TEXT = f"{_TAGS}str"
_PLAIN_TAGS = frozenset(f"{_TAGS}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_NULL = f"{_TAGS}null"
_HEADER = re.compile(r"\s*#\s*@package\b(?P<rest>.*)")
_ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|0[xXbBoO].*|.*:.*)")
MISSING_MARK = "${literal_question_marks:}"
"""What stands for the text `???`, which OmegaConf would take for a value that is not given yet."""
TO_BE_GIVEN = "${to_be_given:}"
"""What stands for a plain ??? in a file: OmegaConf would keep the value of a weaker file instead."""


@dataclass(frozen=True, kw_only=True)
class ConfigText:
    """One file: `package` is None without a header; `root` is None where nothing can be used of it."""

    file: Path
    package: str | None = None
    root: yaml.MappingNode | None = None
    problems: tuple[Problem, ...] = ()

    def data(self, package: str) -> dict[str, Any]:
        """Return the file's data, read by the types of the keys below `package`; {} where the file is broken."""
        if self.root is None:
            return {}
        read_by_type(self.root, package)
        loader = _loader()("")
        try:
            return cast(dict[str, Any], loader.construct_document(self.root))
        finally:
            loader.dispose()


@dataclass
class _Findings:
    """Faults of one file, gathered on the way."""

    file: Path
    problems: list[Problem] = field(default_factory=list)

    def add(self, what: str, line: int | None = None, hint: str | None = None, key: str | None = None) -> None:
        where = str(self.file) if line is None else f"{self.file}:{line}"
        self.problems.append(Problem(key=key, what=what, where=where, hint=hint))


def read_config_file(file: Path) -> ConfigText:
    """Read a file; never raises: what is wrong with it is in `problems`."""
    findings = _Findings(file)
    text = _text_of(file, findings)
    package = _package_of(text, findings)
    root = None if findings.problems else _root_of(text, findings)
    return ConfigText(
        file=file, package=package, root=None if findings.problems else root, problems=tuple(findings.problems)
    )


def read_by_type(root: yaml.MappingNode, package: str) -> None:
    """Mark each plain scalar of a text key, names of keys and choices as text; other scalars keep YAML's reading."""
    kind = key_type("" if package == "_global_" else package)
    for key, value in root.value:
        if key.value == "defaults":
            _retag_choices(value)
        elif key.value != "hydra":
            _retag(value, member_of(kind, str(key.value)))
            key.tag = key.tag if key.value == "<<" else _TEXT


def _retag_choices(node: yaml.Node) -> None:
    """Mark what a defaults list names as text, also where YAML sees something else: `determinism: off`."""
    if isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            _retag_choices(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _retag_choices(item)
    elif isinstance(node, yaml.ScalarNode) and node.tag != _NULL:
        node.tag = _TEXT


def _text_of(file: Path, findings: _Findings) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        findings.add(error.strerror or str(error))
        return ""
    except UnicodeDecodeError as error:
        findings.add(f"the file is not UTF-8 text (byte {error.start})", hint="save the file as UTF-8")
        return ""
    if not text.strip():
        findings.add("the file is empty", hint="write a key, or a comment and {} for a choice that sets nothing")
    return text


def _package_of(text: str, findings: _Findings) -> str | None:
    """Return the package of the header, which may stand anywhere above the first key."""
    package, content = None, False
    for number, line in enumerate(text.splitlines(), start=1):
        match = _HEADER.fullmatch(line)
        if match is None:
            content = content or (bool(line.strip()) and not line.lstrip().startswith(("#", "---")))
            continue
        words = match["rest"].split()
        if content:
            findings.add("`# @package` stands below the first key", number, "move it to the first line of the file")
        elif len(words) != 1:
            findings.add("`# @package` takes one name", number, "write `# @package _global_`")
        else:
            package = words[0]
    return package


def _root_of(text: str, findings: _Findings) -> yaml.MappingNode | None:
    try:
        root = yaml.compose(text, Loader=_loader())
    except yaml.YAMLError as error:
        _explain(error, text, findings)
        return None
    if root is None:
        return yaml.MappingNode(tag=f"{_TAGS}map", value=[])
    if not isinstance(root, yaml.MappingNode):
        kind = "a list" if isinstance(root, yaml.SequenceNode) else "text"
        findings.add(f"the file holds {kind}, not a group of keys", root.start_mark.line + 1, "write KEY: VALUE lines")
        return None
    _check(root, "", findings, set())
    return root


def _explain(error: yaml.YAMLError, text: str, findings: _Findings) -> None:
    mark = getattr(error, "problem_mark", None)
    line = None if mark is None else mark.line + 1
    content = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
    if re.match(r"\s*\t", content):
        findings.add("a tab stands in the indentation", line, "indent with spaces: YAML allows no tabs there")
        return
    said = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).replace("\n", " ")
    if "another document" in said:
        findings.add(
            "the file holds more than one document",
            line,
            "keep one: remove this --- and everything below it, or join the two",
        )
        return
    findings.add(f"the file is not valid YAML: {said}", line, _yaml_hint(said))


def _yaml_hint(said: str) -> str | None:
    if "mapping values are not allowed" in said:
        return "put a value that holds `: ` in quotes, and give keys of one level the same indentation"
    if "expected ',' or" in said or "end of stream" in said:
        return "close what was opened: [ ] or { } or a quote"
    if "could not find expected ':'" in said:
        return "write KEY: VALUE, with a space after the colon"
    return None


def _check(node: yaml.Node, path: str, findings: _Findings, above: set[int]) -> None:
    """Find names given twice, and names that are no plain text."""
    if id(node) in above:
        findings.add("holds itself through an alias (*name)", node.start_mark.line + 1, key=path or None)
        return
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, path, findings, above)
    if isinstance(node, yaml.MappingNode):
        _check_names(node, path, findings, above)


def _check_names(node: yaml.MappingNode, path: str, findings: _Findings, above: set[int]) -> None:
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            findings.add("a name of a key must be plain text", line)
            continue
        name = f"{path}.{key.value}" if path else str(key.value)
        if key.value in lines and key.value != "<<":
            findings.add(f"is given twice, first in line {lines[key.value]}", line, "keep one of the two", name)
        lines.setdefault(key.value, line)
        if value.tag not in _PLAIN_TAGS:
            findings.add(
                f"the YAML tag {value.tag.replace(_TAGS, '!!')} is not allowed", line, "write the plain value", name
            )
        _check(value, name, findings, above)


def _retag(node: yaml.Node, kind: Any) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value != "<<":
                key.tag = _TEXT
            _retag(value, member_of(kind, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _retag(item, items_of(kind))
    elif isinstance(node, yaml.ScalarNode):
        _retag_scalar(node, kind)


def _retag_scalar(node: yaml.ScalarNode, kind: Any) -> None:
    if node.style is None:
        if node.tag == _NULL:
            return
        if node.value == "???":
            node.value = TO_BE_GIVEN
            return
        odd_number = node.tag in (f"{_TAGS}int", f"{_TAGS}float") and _ODD_NUMBER.fullmatch(node.value)
        if wants_raw_text(kind, node.value) or (odd_number and kind is not Any):
            node.tag = _TEXT
    elif node.value == "???":
        node.value = MISSING_MARK


def default_line(root: yaml.MappingNode, name: str) -> int | None:
    """Return the line of the defaults list that names a group or option, counted from 1."""
    lists = [value for key, value in root.value if key.value == "defaults" and isinstance(value, yaml.SequenceNode)]
    for item in (item for node in lists for item in node.value):
        scalars = [item] if isinstance(item, yaml.ScalarNode) else [scalar for pair in item.value for scalar in pair]
        words = [word for scalar in scalars if isinstance(scalar, yaml.ScalarNode) for word in scalar.value.split()]
        if any(name in (word, word.partition("@")[0].rpartition("/")[2]) for word in words):
            return int(item.start_mark.line) + 1
    return None


def leaf_lines_of(root: yaml.MappingNode, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield each leaf of a file with its line, counted from 1; the defaults list is left out."""
    for key, value in root.value:
        name = f"{prefix}.{key.value}" if prefix else str(key.value)
        if name == "defaults":
            continue
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from leaf_lines_of(value, name)
        else:
            yield name, key.start_mark.line + 1


@functools.cache
def _loader() -> Any:
    """OmegaConf's YAML loader: floats without a point, no dates."""
    return get_yaml_loader()
