"""Check `backend.config` before anything is launched, against the data file of upstream's arguments; no torch needed.

Native keys are upstream's arguments by the names that its code uses (`--norm-epsilon` is `layernorm_epsilon`). Refused:
what a neutral key owns, what would have no effect here, unknown names, wrong types and choices.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

from primus_hydra.backends.megatron.training.argv import unsayable
from primus_hydra.backends.megatron.training.describe import Arguments
from primus_hydra.backends.megatron.training.versions import RELEASES, release_for
from primus_hydra.backends.megatron.training.words import REFUSED, REFUSED_GROUPS, owned_arguments
from primus_hydra.errors import Problem
from primus_hydra.native.catalog import FileCatalog
from primus_hydra.native.check import PREFIX, TARGET, Checker
from primus_hydra.native.owned import without_owned
from primus_hydra.native.targets import Targets

NAME = "megatron.training"
TARGETS = Targets(backend=NAME)
# Upstream's third kind is for inference.
_LAYERS: Arguments = {"transformer_impl": {"type": "choice", "choices": ["local", "transformer_engine"]}}


def check_arguments(config: Mapping[str, Any], version: str | None = None) -> list[Problem]:
    """Return everything that is wrong with native keys.

    `version` is Megatron's, None the newest supported one. Raises HostError for a version that is not supported.
    """
    return problems_of(config, load_arguments((release_for(version) if version else RELEASES[-1]).name))


def problems_of(config: Mapping[str, Any], arguments: Arguments) -> list[Problem]:
    """Return everything that is wrong with native keys, judged by described arguments."""
    owned = owned_arguments(arguments)
    free, problems = without_owned(config, owned)
    refused = {name: reason for name in free if (reason := reason_against(name, arguments)) is not None}
    problems += [Problem(key=f"{PREFIX}.{name}", what=f"cannot be set: {reason}") for name, reason in refused.items()]
    allowed = {name: value for name, value in free.items() if name not in refused}
    wrong = _types_of(allowed, arguments, owned)
    return [*problems, *wrong, *([] if wrong else unsayable(allowed, arguments))]


@functools.cache
def load_arguments(release: str) -> Arguments:
    """Read the data file of a release."""
    file = importlib.resources.files("primus_hydra.backends.megatron.training.schema") / f"{release}.json"
    arguments: Arguments = json.loads(file.read_text(encoding="utf-8"))["arguments"]
    return arguments


def _types_of(config: Mapping[str, Any], arguments: Arguments, owned: Mapping[str, str]) -> list[Problem]:
    settable = {name: node for name, node in arguments.items() if reason_against(name, arguments) is None} | _LAYERS
    catalog = FileCatalog({NAME: {"is_a": [NAME], "fields": settable}}, TARGETS)
    problems = Checker(backend=NAME, catalog=catalog, placed={"": NAME}, owners=owned).check(config)
    named = [Problem(key=f"{PREFIX}.{TARGET}", what="arguments have no class to choose")] if TARGET in config else []
    return problems + named


def reason_against(name: str, arguments: Arguments) -> str | None:
    """Return why an argument cannot be set, None if nothing but an owner stands against it."""
    node = arguments.get(name)
    return REFUSED.get(name) or (REFUSED_GROUPS.get(node["group"]) if node else None)
