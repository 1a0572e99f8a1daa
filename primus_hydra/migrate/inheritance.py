"""`extends:` chains of Primus's YAML: bases in their order, later over earlier, the file's own body over all.

Refuses a base that is not there and a chain that leads back to itself. `bases:`, which nothing reads, is a remark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from primus_hydra.errors import Problem, UserError
from primus_hydra.migrate.given import Given, Tree, merged
from primus_hydra.migrate.yaml_file import Remark, YamlFile, read_yaml

EXTENDS = "extends"
LOST = "bases"


def read_with_bases(path: Path, environment: Mapping[str, str], above: tuple[Path, ...] = ()) -> YamlFile:
    """Read a file and what it extends; raises UserError with the chain that led to a fault."""
    place = path.resolve()
    if place in above:
        chain = " -> ".join(file.name for file in (*above, place))
        raise UserError(Problem(key=EXTENDS, what=f"leads back to itself: {chain}", where=str(path)))
    file = read_yaml(path, environment)
    remarks = [*file.remarks, *_lost(file)]
    tree: Tree = {}
    body = {name: value for name, value in file.tree.items() if name not in (EXTENDS, LOST)}
    for base in _bases(file):
        found = read_with_bases(base, environment, (*above, place))
        tree = merged(tree, found.tree)
        remarks += found.remarks
    return replace(file, tree=merged(tree, body), remarks=remarks)


def _bases(file: YamlFile) -> list[Path]:
    named = file.tree.get(EXTENDS)
    if named is None:
        return []
    value = named.value if isinstance(named, Given) else named
    names = [value] if isinstance(value, str) else value
    where = named.where if isinstance(named, Given) else str(file.path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        what = "takes the path of a file, or a list of paths"
        raise UserError(Problem(key=EXTENDS, what=what, where=where))
    paths = [file.path.parent / name for name in names]
    missing = [
        Problem(key=EXTENDS, what=f"there is no file {path}", where=where) for path in paths if not path.is_file()
    ]
    if missing:
        raise UserError(*missing)
    return paths


def _lost(file: YamlFile) -> list[Remark]:
    named = file.tree.get(LOST)
    if named is None:
        return []
    where = named.where if isinstance(named, Given) else str(file.path)
    what = "nothing reads it (the word is extends): what these files say was never inherited, and is not here either"
    return [Remark(name=LOST, where=where, what=what)]
