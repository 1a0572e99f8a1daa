from __future__ import annotations

from primus_hydra.backends.megatron.native_keys import load_schema
from primus_hydra.backends.megatron.shared_keys import homes, spread, without_shared

FIELDS = {
    "transformer": {"bf16": {"type": "bool"}, "timers": {"type": "code"}, "depth": {"type": "int"}},
    "optimizer": {"bf16": {"type": "bool"}, "timers": {"type": "code"}, "gather": {"type": "bool"}},
    "ddp": {"gather": {"type": "bool"}, "bf16": {"type": "bool"}},
}
HOMES = {"optimizer.bf16": "transformer.bf16", "ddp.bf16": "transformer.bf16", "ddp.gather": "optimizer.gather"}


def test_the_first_section_that_has_a_key_is_its_home() -> None:
    assert homes(FIELDS) == HOMES


def test_a_section_that_is_not_there_shares_nothing() -> None:
    assert homes({"ddp": FIELDS["ddp"]}) == {}


def test_a_key_is_refused_everywhere_but_at_home() -> None:
    tree = {"transformer": {"bf16": True}, "ddp": {"gather": True, "bf16": True, "bucket": 1}, "model": 3}
    free, problems = without_shared(tree, HOMES, {"transformer.bf16": "precision.compute"})
    assert free == {"transformer": {"bf16": True}, "ddp": {"bucket": 1}, "model": 3}
    assert [(problem.key, problem.hint) for problem in problems] == [
        ("backend.config.ddp.gather", "set backend.config.optimizer.gather"),
        ("backend.config.ddp.bf16", "set precision.compute"),
    ]


def test_a_value_at_home_goes_to_every_section_that_has_the_key() -> None:
    tree = {"transformer": {"bf16": True, "depth": 2}, "ddp": {"bucket": 1}}
    assert spread(tree, HOMES) == {
        "transformer": {"bf16": True, "depth": 2},
        "optimizer": {"bf16": True},
        "ddp": {"bucket": 1, "bf16": True},
    }
    assert tree["ddp"] == {"bucket": 1}


def test_nothing_is_spread_that_nobody_set() -> None:
    assert spread({"ddp": {"bucket": 1}}, HOMES) == {"ddp": {"bucket": 1}}


def test_megatrons_classes_share_what_they_are_known_to_share() -> None:
    classes, placed = load_schema("0.16")["classes"], load_schema("sections")["placed"]
    found = homes({name: classes[placed[name]]["fields"] for name in ("transformer", "optimizer", "ddp", "dataset")})
    expected = {
        "optimizer.bf16": "transformer.bf16",
        "optimizer.params_dtype": "transformer.params_dtype",
        "ddp.use_distributed_optimizer": "optimizer.use_distributed_optimizer",
        "dataset.context_parallel_size": "transformer.context_parallel_size",
    }
    assert expected.items() <= found.items()
    assert "optimizer.timers" not in found
