"""Write the data files of the installed Megatron: `python -m primus_hydra.backends.megatron.schema.generate`.

Needs torch and Megatron. The files let the launcher check `backend.config` without either; a test proves them equal to
the classes they describe. Our own classes have a file of their own, so that only Megatron's change with its release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import megatron.core
from megatron.core.transformer import MLATransformerConfig

from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.backends.megatron.versions import release_for
from primus_hydra.native.describe import class_at, describe_class, mentioned, name_of

_OURS = "primus_hydra."


def sections_schema() -> dict[str, Any]:
    """Describe what does not change with Megatron: {"placed": {section: class}, "mla": class, "classes": {ours: ...}}.

    `mla` names the class that stands in the transformer section where the attention is multi-latent.
    """
    sections = describe_class(CoreConfig)["fields"]
    placed = {section: name for section, node in sections.items() for name in mentioned(node)}
    classes = {name: info for name, info in _classes().items() if name.startswith(_OURS)}
    return {"placed": {"": name_of(CoreConfig), **placed}, "mla": name_of(MLATransformerConfig), "classes": classes}


def megatron_schema() -> dict[str, Any]:
    """Describe Megatron's classes: {"megatron_core": version, "classes": {name: ...}}."""
    classes = {name: info for name, info in _classes().items() if not name.startswith(_OURS)}
    return {"megatron_core": megatron.core.__shortversion__, "classes": classes}


def data_files() -> dict[Path, str]:
    """Return the data files that the installed Megatron gives, with their text."""
    release = release_for(megatron.core.__shortversion__)
    found = {release.name: megatron_schema(), "sections": sections_schema()}
    return {Path(__file__).with_name(f"{name}.json"): _render(schema) for name, schema in found.items()}


def _render(schema: Mapping[str, Any]) -> str:
    """Write a schema with one line a field, so that a change shows as the lines it changes."""
    head = {name: value for name, value in schema.items() if name != "classes"}
    classes = ",\n".join(_render_class(name, info) for name, info in schema["classes"].items())
    return f'{json.dumps(head, indent=1)[:-2]},\n "classes": {{\n{classes}\n }}\n}}\n'


def _classes() -> dict[str, Any]:
    classes: dict[str, Any] = {}
    todo = [name_of(CoreConfig), name_of(MLATransformerConfig)]
    while todo:
        name = todo.pop()
        if name not in classes:
            classes[name] = describe_class(class_at(name))
            todo += [below for node in classes[name]["fields"].values() for below in mentioned(node)]
    return dict(sorted(classes.items()))


def _render_class(name: str, info: Mapping[str, Any]) -> str:
    fields = ",\n".join(f"    {json.dumps(field)}: {json.dumps(node)}" for field, node in info["fields"].items())
    return f'  {json.dumps(name)}: {{\n   "is_a": {json.dumps(info["is_a"])},\n   "fields": {{\n{fields}\n   }}\n  }}'


def main() -> None:
    """Write the data files."""
    for path, text in data_files().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
