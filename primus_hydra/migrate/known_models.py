"""The model files on the search path, and which of them a recipe means: by the name of its preset, or by its sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from primus_hydra.config.build import build, to_tree
from primus_hydra.config.options import all_folders, group_options
from primus_hydra.config.resolve import flatten
from primus_hydra.config.schema import ModelConfig
from primus_hydra.migrate.model_fields import ModelField

SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
"""What must be the same for a model to be found by its sizes."""


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """One file of the group `model`, with its fields under dotted names."""

    name: str
    model: ModelConfig

    @property
    def fields(self) -> dict[str, Any]:
        """Return the values of all fields, what is null replaced by what it means where sizes follow from others."""
        return resolved(flatten(to_tree(self.model)))


def known_models() -> list[KnownModel]:
    """Read every model that is whole in its own file."""
    found = []
    for option in group_options(all_folders()).get("model", []):
        tree = yaml.safe_load(option.file.read_text(encoding="utf-8-sig"))
        if isinstance(tree, dict) and "defaults" not in tree:
            model, _ = build(ModelConfig, tree)
            if model is not None:
                found.append(KnownModel(name=option.name, model=model))
    return found


def resolved(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with null replaced where it means the value of another field, or none."""
    full = dict(fields)
    heads, hidden = full.get("num_attention_heads"), full.get("hidden_size")
    if full.get("num_key_value_heads") is None:
        full["num_key_value_heads"] = heads
    latent = full.get("kv_lora_rank") is not None
    if full.get("head_dim") is None and heads and hidden and not latent:
        full["head_dim"] = hidden // heads
    for key in ("n_group", "topk_group"):
        full[key] = full.get(key) or 1
    full["n_shared_experts"] = full.get("n_shared_experts") or 0
    if full.get("n_routed_experts") and full.get("moe_intermediate_size") is None:
        full["moe_intermediate_size"] = full.get("intermediate_size")
    return full


def differences(known: KnownModel, fields: Iterable[ModelField]) -> list[ModelField]:
    """Return the fields in which a recipe and a model of ours differ; the family's name is not compared."""
    ours = known.fields
    said = {field.key: field.value for field in fields if field.value is not None}
    full = resolved({**ours, **said} if not said.keys() >= set(SIZES) else said)
    return [
        field
        for field in fields
        if field.key != "architecture" and full.get(field.key, field.value) != ours.get(field.key, field.value)
    ]


def by_name(name: str, models: Sequence[KnownModel]) -> KnownModel | None:
    """Return the model that a preset is named after: `llama3.1_8B.yaml` is `llama3_1_8b`."""
    plain = _letters(re.sub(r"\.ya?ml$", "", name.rpartition("/")[2]))
    shortened = re.sub(r"(pretrain|fp8|bf16|proxy)$", "", plain)
    return next((model for model in models if _letters(model.name) in (plain, shortened)), None)


def by_sizes(fields: Sequence[ModelField], models: Sequence[KnownModel]) -> KnownModel | None:
    """Return the model of the same sizes that differs in the fewest other fields; None where none has the sizes."""
    said = {field.key: field.value for field in fields}
    alike = [model for model in models if all(model.fields[key] == said.get(key) for key in SIZES)]
    return min(alike, key=lambda model: len(differences(model, fields)), default=None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
