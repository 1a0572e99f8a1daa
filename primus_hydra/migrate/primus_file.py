"""A Primus experiment file as a recipe: its module with presets, overrides and command line laid over each other.

Weakest first: the module's preset, the model's preset as far as the module's has not the key, `overrides`, the command
line. Refuses a file without a trainer, and presets that are asked for and not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.suggest import nearest
from primus_hydra.errors import Problem, UserError
from primus_hydra.migrate.given import Given, Tree, leaves, merged, text_at, without_taken
from primus_hydra.migrate.inheritance import read_with_bases
from primus_hydra.migrate.overrides import read_overrides
from primus_hydra.migrate.recipe import Recipe
from primus_hydra.migrate.yaml_file import Remark

_REQUIRED: Final = ("work_group", "user_name", "exp_name", "workspace")
_MODULES: Final = "modules"
_RESERVED: Final = ("framework", "config", "model", "trainer_class", "overrides", "name")
_PRETRAINS: Final = "pre_trainer"


@dataclass(frozen=True, kw_only=True)
class Presets:
    """Where presets are looked for; `root` is None where none was given."""

    root: Path | None
    environment: Mapping[str, str]

    def read(self, kind: str, framework: str, name: str, where: str) -> tuple[Tree, list[Remark]]:
        """Return a preset with what it extends; raises UserError if it is not there."""
        if self.root is None:
            return {}, []
        folder = self.root / kind / framework
        file = folder / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        if not file.is_file():
            there = [found.name for found in folder.glob("*.yaml")] if folder.is_dir() else []
            near = nearest(file.name, there)
            hint = f"did you mean {near[0]}?" if near else "task.presets is the folder that holds modules/ and models/"
            raise UserError(Problem(key="task.presets", what=f"there is no file {file}", where=where, hint=hint))
        found = read_with_bases(file, self.environment)
        return found.tree, found.remarks


def read_experiment(path: Path, presets: Presets, words: Sequence[str]) -> Recipe:
    """Read an experiment file; raises UserError with what keeps it from being read."""
    file = read_with_bases(path, presets.environment)
    name, module = _trainer(file.tree, path)
    framework = text_at(module, "framework")
    if framework is None:
        raise UserError(Problem(key=f"{_MODULES}.{name}.framework", what="is missing: who trains?", where=str(path)))
    keys, lost, remarks = _module(module, framework, presets, words)
    around = {key: value for key, value in file.tree.items() if key not in (_MODULES, "env")}
    around |= {f"{_MODULES}.{name}": {key: module[key] for key in _RESERVED if key in module and key != "overrides"}}
    named = any(text_at(module, key) for key in ("config", "model"))
    return Recipe(
        kind="primus",
        title=path.name,
        framework=framework,
        keys=keys,
        around=dict(leaves(around)),
        environment=_environment(file.tree),
        lost=lost,
        preset=text_at(module, "model"),
        complete=presets.root is not None or not named,
        remarks=(*file.remarks, *remarks),
        notes=(*_missing(file.tree), *_other_modules(file.tree, name), *_without_presets(presets, named)),
    )


def _trainer(tree: Tree, path: Path) -> tuple[str, Tree]:
    """Return the module that pretrains; another stage is not here."""
    modules = tree.get(_MODULES)
    found = {name: value for name, value in modules.items() if "trainer" in name} if isinstance(modules, dict) else {}
    for name, value in found.items():
        if name == _PRETRAINS and isinstance(value, dict):
            return name, value
    for name, value in found.items():
        if isinstance(value, dict) and text_at(value, "stage") in (None, "pretrain") and not name.startswith("post"):
            return name, value
    what = f"only {', '.join(found)} is there, and the stages of it are not here yet" if found else "has no trainer"
    raise UserError(Problem(key=_MODULES, what=what, where=str(path), hint=f"a module {_PRETRAINS} is migrated"))


def _module(
    module: Tree, framework: str, presets: Presets, words: Sequence[str]
) -> tuple[dict[str, Given], dict[str, Given], list[Remark]]:
    """Return the keys of a module, those that did not count, and remarks on the presets' files."""
    keys: Tree = {}
    remarks: list[Remark] = []
    lost: dict[str, Given] = {}
    for kind, key in (("modules", "config"), ("models", "model")):
        name = module.get(key)
        if isinstance(name, Given) and name.value is not None:
            tree, told = presets.read(kind, framework, str(name.value), name.where)
            free, beaten = without_taken(tree, keys)
            keys, remarks = merged(keys, free), [*remarks, *told]
            lost |= {name: given for name, given in beaten.items() if given.value != dict(leaves(keys))[name].value}
    flat = {key: value for key, value in module.items() if key not in _RESERVED}
    overrides = module.get("overrides")
    for over in (flat, overrides if isinstance(overrides, dict) else {}, read_overrides(words)):
        keys = merged(keys, over)
    return dict(leaves(keys)), lost, remarks


def _environment(tree: Tree) -> dict[str, Given]:
    env = tree.get("env")
    return dict(leaves(env)) if isinstance(env, dict) else {}


def _missing(tree: Tree) -> list[str]:
    lacking = [name for name in _REQUIRED if name not in tree]
    return (
        [f"{', '.join(lacking)} is missing, without which Primus would not start; ours needs none of it"]
        if lacking
        else []
    )


def _other_modules(tree: Tree, taken: str) -> list[str]:
    modules: Any = tree.get(_MODULES)
    others = [name for name in modules if name != taken]
    return [f"of the modules only {taken} is migrated; {', '.join(others)} is another job"] if others else []


def _without_presets(presets: Presets, named: bool) -> list[str]:
    if presets.root is not None or not named:
        return []
    what = "the presets that it names were not given (task.presets=DIR): what they set is not here, and ours stands"
    return [what]
