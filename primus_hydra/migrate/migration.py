"""A recipe through all rules: the account of its keys, and the settings and choices of ours that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from primus_hydra.config.key_table import plain
from primus_hydra.migrate import megatron_rules, titan_rules
from primus_hydra.migrate.around import account_for_surroundings
from primus_hydra.migrate.generic import account_for_rest, account_for_same, fill_defaults
from primus_hydra.migrate.given import Given
from primus_hydra.migrate.known_models import known_models
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.megatron_model import model_fields
from primus_hydra.migrate.model_choice import choose_model
from primus_hydra.migrate.model_fields import ModelField
from primus_hydra.migrate.primus_keys import account_for_ignored_words, account_for_primus
from primus_hydra.migrate.recipe import Recipe
from primus_hydra.migrate.runner_file import account_for_runner
from primus_hydra.native.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Framework:
    """Who trains a recipe here: the option of `backend`, its keys, and which rules they need."""

    backend: str
    vocabulary: Vocabulary


def migrate(recipe: Recipe, framework: Framework | None, runner: Recipe | None = None) -> Ledger:
    """Return the account of a recipe; `framework` is None for a runner file, `runner` is one that belongs to it."""
    ledger = _ledger(recipe, framework, runner)
    if framework is not None:
        ledger.choices["backend"] = framework.backend
    _account_for_lost(ledger, recipe)
    account_for_surroundings(ledger, recipe)
    if recipe.kind == "runner" or runner is not None:
        account_for_runner(ledger)
    if framework is not None:
        _account_for_trainer(ledger, recipe, framework)
    else:
        for name in ledger.open():
            ledger.tell("unknown", "a runner file has the sections main, slurm, container and direct", name)
    ledger.notes[:0] = [*recipe.notes, *(f"{remark.name} {remark.what} ({remark.where})" for remark in recipe.remarks)]
    return ledger


def _ledger(recipe: Recipe, framework: Framework | None, runner: Recipe | None) -> Ledger:
    variables = {f"env.{name}": given for name, given in recipe.environment.items()}
    beside: dict[str, Given] = runner.keys if runner else {}
    given = {**recipe.around, **variables, **recipe.keys, **beside}
    return Ledger(given, framework.vocabulary if framework else None, complete=recipe.complete)


def _account_for_trainer(ledger: Ledger, recipe: Recipe, framework: Framework) -> None:
    vocabulary = framework.vocabulary
    account_for_ignored_words(ledger, vocabulary)
    account_for_primus(ledger)
    same, rules = _rules(vocabulary.source)
    for rule in rules:
        rule(ledger)
    account_for_same(ledger, vocabulary, same)
    fields, names = _model(ledger, recipe, vocabulary.source)
    choose_model(ledger, fields, known_models(), names, recipe.title)
    ledger.tell("translated", f"model={ledger.choices.get('model')}", *_named(ledger))
    account_for_rest(ledger, vocabulary)
    fill_defaults(ledger, vocabulary, same)


def _rules(source: str) -> tuple[Collection[str], Iterable[Callable[[Ledger], None]]]:
    if source == "torchtitan":
        return titan_rules.SAME, titan_rules.RULES
    return megatron_rules.SAME, megatron_rules.RULES


def _model(ledger: Ledger, recipe: Recipe, source: str) -> tuple[list[ModelField], list[str]]:
    """Return the fields of the model that the recipe says, and the names that it may have here."""
    if source == "torchtitan":
        layers = ledger.get("model.n_layers")
        field = ModelField(key="num_hidden_layers", value=layers, names=("model.n_layers",), explicit=True)
        return ([field] if layers else []), titan_rules.preset_names(ledger, recipe.preset)
    return model_fields(ledger), [recipe.preset] if recipe.preset else []


def _named(ledger: Ledger) -> list[str]:
    """Return the names by which torchtitan chooses a model, where one of ours was found for them."""
    found = ledger.choices.get("model") not in (None, "null")
    return [name for name in ("model.name", "model.flavor") if found and ledger.has(name)]


def _account_for_lost(ledger: Ledger, recipe: Recipe) -> None:
    """Tell of values of the model's preset that the module's preset kept from counting."""
    for name, given in recipe.lost.items():
        kept = ledger.given[name].value if name in ledger.given else None
        what = (
            f"{name}={plain(given.value)} of the model's preset ({given.where}) never counted: the module's has it too"
        )
        ledger.notes.append(f"{what}, and {plain(kept)} is used")
