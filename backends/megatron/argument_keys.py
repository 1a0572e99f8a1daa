"""Megatron's arguments as keys of `backend=megatron`: what people's recipes and scripts are written in.

The names, types and defaults are those of the newest release's parser; whose neutral key an argument is, and which
field of which section it sets, follows from the tables that the check and the translation use.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from primus_hydra.backends.megatron.native_keys import homes_in, load_schema
from primus_hydra.backends.megatron.owned import OWNED
from primus_hydra.backends.megatron.shared_keys import SECTIONS
from primus_hydra.backends.megatron.training.native_keys import TARGETS, load_arguments, reason_against
from primus_hydra.backends.megatron.training.versions import RELEASES as TRAINING_RELEASES
from primus_hydra.backends.megatron.training.words import INVERTED, argument_of, owned_arguments
from primus_hydra.backends.megatron.versions import RELEASES
from primus_hydra.native.catalog import FileCatalog
from primus_hydra.native.check import PREFIX
from primus_hydra.native.describe import Node, only_code
from primus_hydra.native.vocabulary import NativeKey, Vocabulary

SOURCE: Final = "Megatron"
_PLACES: Final[dict[str, str]] = {
    "rampup_batch_size": "batch.rampup",
    "distributed_timeout_minutes": "parallel.distributed_timeout_minutes",
    "nccl_communicator_config_path": "parallel.nccl_communicator_config_path",
    "ckpt_fully_parallel_save": "checkpoint.fully_parallel_save",
    "ckpt_fully_parallel_load": "checkpoint.fully_parallel_load",
    "manual_gc_interval": "loop.garbage_collect_every",
    "data_cache_path": "dataset.path_to_cache",
    "profile_ranks": "loop.profile_ranks",
}
"""Arguments whose place is in one of our own sections, or has another name."""
_HERE: Final[dict[str, Any]] = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
"""Arguments whose field begins with another value here than the argument does."""
_NO_PLACE: Final = "our loop on megatron-core has no such setting; backend=megatron_training hands upstream's all over"


@functools.cache
def core_vocabulary() -> Vocabulary:
    """Return the arguments as keys of our loop on megatron-core."""
    arguments = load_arguments(TRAINING_RELEASES[-1].name)
    owners, places = owned_arguments(arguments), _places()
    keys = {name: _core_key(name, node, owners.get(name), places.get(name)) for name, node in arguments.items()}
    return Vocabulary(source=SOURCE, keys=keys, flags=_flags(arguments))


@functools.cache
def training_vocabulary() -> Vocabulary:
    """Return the arguments as keys of upstream's own loop, which takes them by the same names."""
    arguments = load_arguments(TRAINING_RELEASES[-1].name)
    owners = owned_arguments(arguments)
    keys = {}
    for name, node in arguments.items():
        owner = owners.get(name)
        refused = None if owner else reason_against(name, arguments)
        place = None if owner or refused else name
        keys[name] = NativeKey(node=node, owner=owner, place=place, refused=refused, here=_HERE.get(name))
    return Vocabulary(source=SOURCE, keys=keys, flags=_flags(arguments))


def _core_key(name: str, node: Node, owner: str | None, place: str | None) -> NativeKey:
    if owner is not None:
        return NativeKey(node=node, owner=owner)
    if place is None:
        reason = reason_against(name, load_arguments(TRAINING_RELEASES[-1].name))
        return NativeKey(node=node, refused=reason or _NO_PLACE)
    joined = name == "profile_ranks"
    return NativeKey(node=node, place=place, inverted=place in INVERTED, joined=joined, here=_HERE.get(name))


def _places() -> dict[str, str]:
    """Return the field below `backend.config` that each argument sets."""
    schema, sections = load_schema(RELEASES[-1].name)["classes"], load_schema("sections")
    placed = sections["placed"] | {"transformer": sections["mla"]}
    catalog = FileCatalog(schema | sections["classes"], TARGETS)
    shared = homes_in(catalog, placed)
    found: dict[str, str] = {}
    for section in (*SECTIONS, "model"):
        info = catalog.find(placed[section])
        for field, node in (info["fields"] if info else {}).items():
            path = f"{section}.{field}"
            if not only_code(node) and path not in shared and path not in OWNED:
                found.setdefault(argument_of(path), path)
    of_ours = {
        argument_of(path): owner.removeprefix(f"{PREFIX}.") for path, owner in OWNED.items() if owner.startswith(PREFIX)
    }
    return found | of_ours | _PLACES


def _flags(arguments: dict[str, Node]) -> dict[str, tuple[str, Any]]:
    flags: dict[str, tuple[str, Any]] = {}
    for name, node in arguments.items():
        switch = isinstance(node.get("default"), bool) or node["type"] == "bool"
        if "set" in node:
            flags[node["set"]] = (name, True if switch else None)
        if "clear" in node:
            flags[node["clear"]] = (name, False)
    return flags
