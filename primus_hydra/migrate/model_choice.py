"""Which `model=` a recipe becomes, and what of it is not as in our file; a model that we lack becomes a whole node.

Where the recipe says something else than our file, it wins and is told. Where only a default of the other launcher is
different, ours stays, as published, and that is told: so Llama 3.1 keeps its stretched positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from primus_hydra.migrate.known_models import KnownModel, by_name, by_sizes, differences
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.model_fields import ModelField

_SCALING: Final = "rope_scaling"


def choose_model(
    ledger: Ledger, fields: Sequence[ModelField], models: Sequence[KnownModel], names: Sequence[str], title: str
) -> None:
    """Choose the model, by the `names` of its preset first, then by its sizes; `title` names one that we lack."""
    preset = names[0] if names else None
    known = next((found for name in names if (found := by_name(name, models))), None) or by_sizes(fields, models)
    if known is not None:
        _take(ledger, fields, known)
    elif fields:
        _whole(ledger, fields, preset or title)
    elif preset:
        what = f"no model here is called like {preset}: choose one with model=, or give its preset (task.presets=DIR)"
        ledger.notes.append(what)


def _take(ledger: Ledger, fields: Sequence[ModelField], known: KnownModel) -> None:
    ledger.choices["model"] = known.name
    other = differences(known, fields)
    for field in fields:
        if field not in other:
            ledger.tell("translated", f"as in model={known.name}", *field.names)
    stretched = [field for field in other if field.key.startswith(_SCALING)]
    if _lost_scaling(stretched, known):
        _tell_scaling(ledger, known, stretched)
        other = [field for field in other if field not in stretched]
    for field in other:
        ours = known.fields[field.key]
        if field.explicit:
            told = f"model={known.name} has {_word(ours)}, as published"
            ledger.say(f"model.{field.key}", field.value, *field.names, changed=told)
        else:
            what = f"model.{field.key} was {_word(field.value)} there, by default; model={known.name} has {_word(ours)}"
            ledger.notes.append(f"{what}, as published. To keep the old: model.{field.key}={_word(field.value)}")


def _lost_scaling(fields: Sequence[ModelField], known: KnownModel) -> bool:
    no_type = any(field.key == f"{_SCALING}.rope_type" and field.value is None for field in fields)
    return no_type and known.model.rope_scaling.rope_type is not None


def _tell_scaling(ledger: Ledger, known: KnownModel, fields: Sequence[ModelField]) -> None:
    scaling = known.model.rope_scaling
    what = (
        f"the recipe trains {known.model.max_position_embeddings} positions without stretching them; "
        f"model={known.name} stretches them as published ({scaling.rope_type}, factor {scaling.factor:g}). "
        f"To keep the old: model.{_SCALING}.rope_type=null"
    )
    ledger.notes.append(what)
    ledger.tell("changed", what, *(name for field in fields for name in field.names))


def _whole(ledger: Ledger, fields: Sequence[ModelField], named: str) -> None:
    """Write every field that is known: what is then missing, the composition tells."""
    ledger.choices["model"] = "null"
    name = named.rpartition("/")[2].rpartition(".")[0] or named
    ledger.put("model.name", name.lower().replace(".", "_").replace("-", "_"))
    length = ledger.settings.get("training.seq_length")
    if length is not None and all(field.key != "max_position_embeddings" for field in fields):
        ledger.put("model.max_position_embeddings", length.value)
    for field in fields:
        if field.value is not None:
            ledger.say(f"model.{field.key}", field.value, *field.names)
        else:
            ledger.tell("default", None, *field.names)


def _word(value: Any) -> str:
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
    )
