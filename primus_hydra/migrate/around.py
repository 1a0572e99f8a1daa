"""What a recipe says beside the trainer's keys: who runs it, where, on what, and with which variables."""

from __future__ import annotations

import re
from typing import Final

from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.megatron_arguments import LAUNCHER_WORDS
from primus_hydra.migrate.recipe import Recipe
from primus_hydra.runtime.reserved import is_reserved

_SAME: Final = {"work_group": "run.group", "user_name": "run.user", "exp_name": "run.name"}
_SHELL: Final = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_PLATFORM: Final = "it names environment variables that the launcher itself reads; a platform is hardware here"


def account_for_surroundings(ledger: Ledger, recipe: Recipe) -> None:
    """Enter the keys around the trainer's, and the variables."""
    for name, key in _SAME.items():
        if ledger.has(name) and ledger.get(name) is not None:
            ledger.say(key, str(ledger.get(name)), name)
    if ledger.has("workspace"):
        told = "a run is run.dir/run.name here; group and user are labels, not folders"
        ledger.say("run.dir", str(ledger.get("workspace")), "workspace", changed=told)
    for name in recipe.around:
        if name.startswith("platform"):
            ledger.tell("dead", _PLATFORM, name)
        elif name.startswith("modules.") and name.endswith(".framework"):
            ledger.tell("translated", f"backend={ledger.choices.get('backend')}", name)
        elif name.startswith("modules.") and name.endswith((".config", ".model")):
            ledger.tell("translated", "its keys are among those of the module", name)
        elif name.startswith("modules.") and name.endswith(".trainer_class"):
            ledger.tell("unsupported", "a trainer of one's own is backend.trainer, a class of this project's", name)
    _started(ledger)
    for name in recipe.environment:
        _variable(ledger, name)
    for name in recipe.around:
        if name in ledger.open():
            ledger.tell("unknown", "nothing reads a key of this name at the top of an experiment", name)


def _started(ledger: Ledger) -> None:
    """Enter what torchrun was told in a script."""
    nodes, ranks = ledger.number("nnodes"), ledger.number("nproc_per_node")
    if nodes is not None:
        ledger.say("launch.nodes", int(nodes), "nnodes")
    if ranks is not None:
        ledger.tell("translated", "one rank for each GPU of the platform", "nproc_per_node")
    left = [name for name in LAUNCHER_WORDS if name in ledger.open()]
    ledger.tell("dead", "the launcher finds it out", *left)


def _variable(ledger: Ledger, name: str) -> None:
    """Set a variable of the ranks; `$VAR` in its value is put in when the run starts, as there."""
    key, variable, value = f"env.{name}", name, ledger.get(f"env.{name}")
    if is_reserved(variable):
        ledger.tell("dead", "the launcher sets this variable", key)
    elif value is None:
        ledger.tell("dead", "null sets it to the text None there; a variable without a value is left out here", key)
    else:
        text = str(value)
        if _SHELL.search(text):
            text = _SHELL.sub(lambda match: f"${{env:{match[1] or match[2]},''}}", text)
        ledger.say(key, text, key)
