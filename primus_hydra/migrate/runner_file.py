"""Primus's runner file (`.primus.yaml`) as a recipe, and what its keys are here: Slurm, the container, the start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.keys import facts_of
from primus_hydra.migrate.given import leaves
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.recipe import Recipe
from primus_hydra.migrate.yaml_file import read_yaml

SECTIONS: Final = ("main", "slurm", "container", "direct")
_LAUNCHER: Final = "the launcher decides it: one task for each node, with the logs in the run's folder"
_DEAD: Final[dict[str, str]] = {
    "main.debug": "logs of every rank are kept here",
    "main.dry_run": "task=plan shows what would be done, and does nothing",
    "slurm.ntasks": _LAUNCHER,
    "slurm.ntasks_per_node": _LAUNCHER,
    "slurm.output": _LAUNCHER,
    "slurm.error": _LAUNCHER,
    "direct.script": "the launcher starts its own ranks",
    "direct.run_mode": "how ranks start follows from their number",
    "direct.nnodes": "no code reads it there; launch.nodes says it",
    "direct.gpus_per_node": "no code reads it there; the platform says it",
    "direct.master_port": "no code reads it there; the launcher finds a free one",
    "direct.master_addr": "no code reads it there; the launcher finds it out",
    "container.clean": "it removes every container of the machine; a run removes its own here",
    "container.options.name": "a container is named after its run",
    "container.options.rm": "a container is removed after its run",
}
_UNSUPPORTED: Final[dict[str, str]] = {
    "direct.patch": "scripts around the ranks are hooks.pre_launch and hooks.pre_train",
}
_FLAGS: Final = frozenset(
    {
        *("cap-add", "ulimit", "memory", "cpus", "ipc", "security-opt", "group-add"),
        *("privileged", "shm-size", "hostname"),
    }
)
"""Options of a container that are handed to its engine as they are."""


def read_runner(path: Path, environment: Mapping[str, str]) -> Recipe:
    """Read a runner file; raises UserError."""
    file = read_yaml(path, environment)
    return Recipe(
        kind="runner", title=path.name, framework=None, keys=dict(leaves(file.tree)), remarks=tuple(file.remarks)
    )


def account_for_runner(ledger: Ledger) -> None:
    """Enter every key of a runner file."""
    for name in ledger.open():
        section, _, rest = name.partition(".")
        plain = name.replace("-", "_")
        if plain in _DEAD or plain in _UNSUPPORTED:
            ledger.tell("dead" if plain in _DEAD else "unsupported", _DEAD.get(plain) or _UNSUPPORTED[plain], name)
        elif section == "slurm":
            _slurm(ledger, name, rest.replace("-", "_"))
        elif name.startswith("container.options."):
            _container(ledger, name, name.removeprefix("container.options.").replace("_", "-"))
        elif name == "direct.numa":
            ledger.say("launch.bind", "none" if ledger.get(name) is False else "auto", name)
        elif name == "direct.env":
            _variables(ledger, name)
        elif section in SECTIONS:
            ledger.tell("unknown", f"the section {section} has no such key: it had no effect", name)


def _slurm(ledger: Ledger, name: str, option: str) -> None:
    value = ledger.get(name)
    if value is None:
        ledger.tell("default", None, name)
    elif option in ("nodes", "N"):
        ledger.say("launch.nodes", value, name)
    elif facts_of(f"launch.slurm.{option}").kind == "leaf":
        takes_text = facts_of(f"launch.slurm.{option}").takes_text
        ledger.say(f"launch.slurm.{option}", str(value) if takes_text else value, name)
    else:
        word = "true" if value is True else str(value)
        ledger.say(f"launch.slurm.sbatch_args.{option.replace('_', '-')}", word, name)


def _container(ledger: Ledger, name: str, option: str) -> None:
    value = ledger.get(name)
    texts = [str(item) for item in (value if isinstance(value, list) else [value])]
    if value is None:
        ledger.tell("default", None, name)
    elif option == "image":
        ledger.say("launch.container.image", str(value), name)
        ledger.put("launch.container.kind", "docker")
    elif option in ("device", "volume"):
        ledger.say(f"launch.container.{'devices' if option == 'device' else 'mounts'}", texts, name)
    elif option in ("network", "user"):
        ledger.say(f"launch.container.{option}", str(value), name)
    elif option == "env":
        _container_variables(ledger, name, texts)
    elif option in _FLAGS and value is not False:
        flags = [f"--{option}"] if value is True else [f"--{option}={text}" for text in texts]
        _add(ledger, "launch.container.extra_args", flags, name)
    elif value is False:
        ledger.tell("default", None, name)
    else:
        _add(ledger, "launch.container.extra_args", [f"--{option}={text}" for text in texts], name)


def _container_variables(ledger: Ledger, name: str, texts: list[str]) -> None:
    _set(ledger, name, texts)
    names = [text for text in texts if "=" not in text]
    if names:
        ledger.say(
            "launch.container.env", names, name, changed="only these names reach the container, and what env sets"
        )


def _variables(ledger: Ledger, name: str) -> None:
    value: Any = ledger.get(name)
    _set(ledger, name, [str(item) for item in (value if isinstance(value, list) else [value])])


def _set(ledger: Ledger, name: str, texts: list[str]) -> None:
    for text in texts:
        variable, equals, value = text.partition("=")
        if equals:
            ledger.say(f"env.{variable}", value, name)
    if name in ledger.open():
        ledger.tell("default", None, name)


def _add(ledger: Ledger, key: str, items: list[str], name: str) -> None:
    before = ledger.settings.get(key)
    ledger.say(key, [*(before.value if before else []), *items], name)


def is_runner(names: set[str]) -> bool:
    """Whether the names at the top of a file are those of a runner file."""
    return bool(names) and names <= set(SECTIONS)
