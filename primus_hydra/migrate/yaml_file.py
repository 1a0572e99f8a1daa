"""A YAML file as Primus's loader reads it (PyYAML, YAML 1.1), with the line of every value and what it hides.

Variables are put in before anything else is done, as there. Refuses files that cannot be read, hold no group of keys,
or need a variable that is not set; a name given twice, and a number that YAML 1.1 takes for text, are remarks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from primus_hydra.errors import Problem, UserError
from primus_hydra.migrate.given import Given, Tree
from primus_hydra.migrate.substitution import UnsetVariableError, has_variables, substitute

_ODD_FLOAT: Final = re.compile(r"[-+]?\d+[eE][-+]?\d+")
_TEXT: Final = "tag:yaml.org,2002:str"


@dataclass(frozen=True, kw_only=True)
class Remark:
    """Something of a file that its writer may not expect."""

    name: str
    where: str
    what: str


@dataclass(kw_only=True)
class YamlFile:
    """What a file holds, with remarks; `problems` are variables that are not set."""

    path: Path
    tree: Tree = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(path: Path, environment: Mapping[str, str]) -> YamlFile:
    """Read a file; raises UserError with everything that keeps it from being read."""
    return parse_yaml(_text(path), path, environment)


def parse_yaml(text: str, path: Path, environment: Mapping[str, str]) -> YamlFile:
    """Read the text of a file, whose path stands in messages; raises as `read_yaml`."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        file = YamlFile(path=path)
        if root is None:
            return file
        if not isinstance(root, yaml.MappingNode):
            what = "holds no group of keys"
            raise UserError(Problem(what=what, where=str(path), hint="write KEY: VALUE lines"))
        file.tree = _Walk(file, loader, environment).group(root, "")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        said = str(getattr(error, "problem", None) or error).replace("\n", " ")
        raise UserError(Problem(what=f"is not valid YAML: {said}", where=where)) from None
    finally:
        loader.dispose()
    if file.problems:
        raise UserError(*file.problems)
    return file


class _Walk:
    """Turns YAML nodes into a tree of values."""

    def __init__(self, file: YamlFile, loader: yaml.SafeLoader, environment: Mapping[str, str]) -> None:
        self.file, self.loader, self.environment = file, loader, environment

    def group(self, node: yaml.MappingNode, path: str) -> Tree:
        own = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        self.loader.flatten_mapping(node)
        tree: Tree = {}
        for key, value in node.value:
            name = str(key.value)
            here = f"{path}.{name}" if path else name
            if own.count(name) > 1 and name in tree:
                self.remark(here, value, "is given twice in one group, and the last one counts")
            tree[name] = self.value(value, here)
        return tree

    def value(self, node: yaml.Node, path: str) -> Given | Tree:
        if isinstance(node, yaml.MappingNode):
            return self.group(node, path)
        where = f"{self.file.path}:{node.start_mark.line + 1}"
        plain = self.loader.construct_object(node, deep=True)
        if node.tag == _TEXT and getattr(node, "style", None) is None and _ODD_FLOAT.fullmatch(node.value):
            self.remark(path, node, f"{node.value} without a dot is text to YAML 1.1, not a number")
        text = plain if isinstance(plain, str) and has_variables(plain) else None
        return Given(value=self.put_in(plain, path, where), where=where, text=text)

    def put_in(self, plain: Any, path: str, where: str) -> Any:
        if isinstance(plain, list):
            return [self.put_in(item, path, where) for item in plain]
        if isinstance(plain, dict):
            return {name: self.put_in(item, path, where) for name, item in plain.items()}
        if not isinstance(plain, str):
            return plain
        try:
            return substitute(plain, self.environment)
        except UnsetVariableError as error:
            what = f"the environment variable {error.name} is not set, and ${{{error.name}}} has no default"
            hint = f"set it (export {error.name}=...), or write ${{{error.name}:DEFAULT}}"
            self.file.problems.append(Problem(key=path, what=what, where=where, hint=hint))
            return plain

    def remark(self, path: str, node: yaml.Node, what: str) -> None:
        where = f"{self.file.path}:{node.start_mark.line + 1}"
        self.file.remarks.append(Remark(name=path, where=where, what=what))


def _text(path: Path) -> str:
    if not path.is_file():
        what = f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}"
        raise UserError(Problem(key="task.path", what=what, hint=f"looked in {Path.cwd()}"))
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(Problem(key="task.path", what=f"{path} cannot be read as text: {error}")) from None
