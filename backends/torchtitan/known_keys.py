"""torchtitan's keys as people's files have them, of 0.3 and of the versions before, and what each is here."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

from primus_hydra.backends.torchtitan.former_keys import OWNED as FORMERLY_OWNED
from primus_hydra.backends.torchtitan.former_keys import REMOVED, REMOVED_SECTIONS, RENAMED
from primus_hydra.backends.torchtitan.native_keys import load_schema
from primus_hydra.backends.torchtitan.owned_0_3 import OWNED
from primus_hydra.backends.torchtitan.versions import RELEASES
from primus_hydra.native.describe import Node, only_code
from primus_hydra.native.vocabulary import NativeKey, Vocabulary

SOURCE: Final = "torchtitan"
_RECOMPUTE: Final = "activation_checkpoint"
_RECOMPUTE_CLASSES: Final = "torchtitan.distributed.activation_checkpoint."


@functools.cache
def vocabulary() -> Vocabulary:
    """Return torchtitan's keys, the newest supported release's and the former ones."""
    schema = load_schema(RELEASES[-1].name)
    keys = {name: _key(name, node) for name, node in _fields(schema)}
    # What has no field of its own any more wins: 0.3 keeps a field of that name here and there, for other things.
    keys |= {
        name: NativeKey(node={"type": "any", "default": default}, owner=owner)
        for name, (owner, default) in FORMERLY_OWNED.items()
    }
    keys |= {name: NativeKey(node={"type": "any"}, refused=reason) for name, reason in REMOVED.items()}
    keys |= {f"{name}.*": NativeKey(node={"type": "any"}, refused=reason) for name, reason in REMOVED_SECTIONS.items()}
    return Vocabulary(source=SOURCE, keys=keys, former=RENAMED)


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, Node]]:
    recompute = ((_RECOMPUTE, name) for name in schema["classes"] if name.startswith(_RECOMPUTE_CLASSES))
    places = [*schema["placed"].items(), *recompute]
    for path, name in places:
        for field, node in schema["classes"][name]["fields"].items():
            below = f"{path}.{field}" if path else field
            if not only_code(node) and node["type"] != "object" and below not in schema["placed"]:
                yield below, node


def _key(name: str, node: Node) -> NativeKey:
    owner = next((owner for owned, owner in OWNED.items() if name == owned or name.startswith(f"{owned}.")), None)
    return NativeKey(node=node, owner=owner, place=None if owner else name)
