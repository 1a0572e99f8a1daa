"""A model folder as `transformers` writes it: config.json and safetensors files, one or several with an index.

The index, where there is one, decides which files count. Everything that is wrong with the folder is gathered; nothing
but names and headers is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from primus_hydra.errors import Problem
from primus_hydra.weights.headers import BrokenFileError, TensorInfo, read_header

CONFIG_FILE: Final = "config.json"
INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
KEY: Final = "init_from"
_PICKLED: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(kw_only=True)
class HfFolder:
    """What a folder holds, and what is wrong with it; with problems the rest is not complete."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, what: str, *, file: str | None = None, hint: str | None = None) -> None:
        """Note a problem, in one file or in the folder."""
        where = self.path / file if file else self.path
        self.problems.append(Problem(key=KEY, what=what, where=str(where), hint=hint))


def read_folder(path: Path) -> HfFolder:
    """Read a model folder; never raises for what lies in it."""
    found = HfFolder(path=path)
    if not path.is_dir():
        found.refuse("there is no such folder", hint=f"current folder: {Path.cwd()}")
        return found
    found.config = _read_json(found, CONFIG_FILE, missing="the folder has no config.json, so its model is not known")
    index = _read_index(found)
    for name in _files(found, index):
        _add_file(found, name)
    _compare_with_index(found, index)
    return found


def _read_json(found: HfFolder, name: str, *, missing: str | None = None) -> dict[str, Any]:
    try:
        tree = json.loads((found.path / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if missing:
            found.refuse(missing)
        return {}
    except (OSError, ValueError) as error:
        found.refuse(f"cannot be read as JSON: {error}", file=name)
        return {}
    if not isinstance(tree, dict):
        found.refuse("is not a JSON object", file=name)
        return {}
    return tree


def _read_index(found: HfFolder) -> dict[str, str]:
    """Return the file of each tensor, as the index says; empty without an index."""
    tree = _read_json(found, INDEX_FILE)
    files = tree.get("weight_map", {})
    if tree and not (isinstance(files, dict) and files and all(isinstance(name, str) for name in files.values())):
        found.refuse("has no weight_map from tensors to files", file=INDEX_FILE)
        return {}
    return dict(files)


def _files(found: HfFolder, index: dict[str, str]) -> list[str]:
    if index:
        return sorted(set(index.values()))
    if (found.path / SINGLE_FILE).is_file():
        return [SINGLE_FILE]
    names = sorted(file.name for file in found.path.glob("*.safetensors"))
    if not names and not found.problems:
        pickled = any((found.path / name).is_file() for name in _PICKLED)
        hint = "its weights are pickled: save the model once more with safe_serialization=True" if pickled else None
        found.refuse("the folder has no *.safetensors", hint=hint)
    return names


def _add_file(found: HfFolder, name: str) -> None:
    try:
        tensors = read_header(found.path / name)
    except FileNotFoundError:
        found.refuse("the file is not there, but the index names it", file=name)
    except BrokenFileError as error:
        found.refuse(f"the file is damaged: {error}", file=name, hint="copy or download it again")
    except OSError as error:
        found.refuse(f"cannot be read: {error}", file=name)
    else:
        found.tensors |= tensors


def _compare_with_index(found: HfFolder, index: dict[str, str]) -> None:
    if found.problems:
        return
    absent = [name for name in index if name not in found.tensors]
    if absent:
        found.refuse(f"names {len(absent)} tensors that are in no file: {absent[0]}, ...", file=INDEX_FILE)
    if index:
        found.tensors = {name: info for name, info in found.tensors.items() if name in index}
