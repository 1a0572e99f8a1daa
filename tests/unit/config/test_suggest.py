"""Hints name what was meant, and only that."""

from __future__ import annotations

import pytest

from primus_hydra.config.keys import all_keys, facts_of
from primus_hydra.config.renames import RENAMES
from primus_hydra.config.suggest import key_hint, nearest

GROUPS = ["model", "module", "data", "tokenizer", "platform"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("optimizer.lrr", "did you mean optimizer.lr?"),
        ("training.lr", "did you mean optimizer.lr?"),
        ("optimzer.lr", "did you mean optimizer.lr?"),
        ("OPTIMIZER.LR", "did you mean optimizer.lr?"),
        ("seq_length", "did you mean training.seq_length?"),
        ("seq-len", "seq_len is called training.seq_length here"),
        ("exp_name", "exp_name is called run.name here"),
        ("optimizer.adam_beta1", "adam_beta1 is called optimizer.beta1 here"),
        ("platfrom", "did you mean platform?"),
        ("xyzzy.plugh", None),
    ],
)
def test_the_hint_names_what_was_meant(key: str, hint: str | None) -> None:
    assert key_hint(key, all_keys(), GROUPS) == hint


def test_every_rename_leads_to_a_key_or_node_that_exists_and_hides_none() -> None:
    targets = {name: here.split(" ")[0].split("=")[0] for name, here in RENAMES.items()}

    assert [
        f"{name}: {key}" for name, key in targets.items() if facts_of(key).kind == "unknown" and key != "data"
    ] == []
    assert [name for name in RENAMES if facts_of(name).kind != "unknown"] == []
    assert len(RENAMES) >= 60


def test_a_clearly_better_name_stands_alone() -> None:
    assert nearest("lrr", ["lr", "eps", "beta1"]) == ["lr"]
    assert nearest("LR", ["lr", "LRR"]) == ["lr"]
