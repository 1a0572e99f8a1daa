from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.backends.torchtitan.native_keys import check_native, load_schema
from primus_hydra.backends.torchtitan.owned_0_3 import OWNED
from primus_hydra.config.build import schema_keys
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError

AC = "torchtitan.distributed.activation_checkpoint"
HF_LOADER = "torchtitan.hf_datasets.text_datasets.HuggingFaceTextDataLoader.Config"


def messages(config: dict[str, Any], **placed: str | None) -> list[str]:
    return [str(problem) for problem in check_native(config, "0.3.0", placed=placed)]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"training": {"gc_freq": 100, "enable_cpu_offload": True}},
        {"parallelism": {"module_fqns_per_model_part": [["tok_embeddings"], ["layers.0", "norm"]]}},
        {"parallelism": {"context_parallel_load_balancer": None}},
        {"override": {"imports": ["a.b.c", ["d.e.f", {"block_size": 64}]]}},
        {"optimizer": {"param_groups": [{"pattern": "x", "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": 1}}]}},
        {"dataloader": {"_target_": HF_LOADER, "dataset": "c4", "num_workers": 2}},
        {"activation_checkpoint": {"_target_": f"{AC}.FullAC.Config", "debug": True}},
        {"metrics": {"_target_": "primus_hydra.elsewhere.Metrics.Config", "colour": "red"}},
    ],
)
def test_good_native_keys_pass(config: dict[str, Any]) -> None:
    assert messages(config) == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"training": {"gc_freg": 1}}, "backend.config.training.gc_freg: torchtitan has no such key here"),
        ({"training": {"gc_freg": 1}}, "did you mean backend.config.training.gc_freq?"),
        ({"gc_freq": 1}, "did you mean backend.config.training.gc_freq?"),
        ({"seq_len": 1}, "did you mean training.seq_length?"),
        ({"training": {"gc_freq": "often"}}, "expects a whole number, not the text 'often'"),
        ({"training": {"gc_freq": True}}, "expects a whole number, not true"),
        ({"training": {"gc_freq": 1.5}}, "expects a whole number, not 1.5"),
        ({"training": {"enable_cpu_offload": 1}}, "expects true or false, not 1"),
        ({"training": None}, "expects a group of keys, not null"),
        ({"training": [1]}, "expects a group of keys, not the list [1]"),
        ({"parallelism": {"spmd_backend": "spmd_type"}}, "did you mean spmd_types?"),
        ({"parallelism": {"module_fqns_per_model_part": ["norm"]}}, "not the list ['norm']"),
        ({"override": {"imports": "a.b"}}, "expects a list, not the text 'a.b'"),
        ({"override": {"imports": [["a.b", 1, 2]]}}, "backend.config.override.imports[0]"),
        ({"optimizer": {"param_groups": [{"pattern": "x"}]}}, "param_groups[0].optimizer_name"),
        ({"dataloader": {"num_workers": 1}}, "backend.config.dataloader.num_workers: torchtitan has no such key here"),
        ({"dataloader": {"open_split": "x"}}, "can only be set by code"),
        ({"dataloader": {"_target_": f"{AC}.FullAC.Config"}}, "is not a torchtitan.components.dataloader"),
        ({"dataloader": {"_target_": "os.path.join"}}, "os is not a package that a configuration may name"),
        ({"dataloader": {"_target_": 3}}, "expects the import path of a class, not 3"),
        ({"activation_checkpoint": {"debug": True}}, f"_target_={AC}.SelectiveAC.Config or "),
        ({"checkpoint": {"_target_": "torchtitan.components.checkpointer.dcp.CheckpointManager.Config"}}, "derive"),
    ],
)
def test_a_wrong_native_key_is_explained(config: dict[str, Any], expected: str) -> None:
    found = messages(config)
    assert any(expected in message for message in found), found


def test_keys_of_the_recomputation_that_is_on_may_be_set() -> None:
    config = {"activation_checkpoint": {"preserve_rng_state": False}}
    assert messages(config, activation_checkpoint=f"{AC}.FullAC.Config") == []
    assert messages(config, activation_checkpoint=None) != []


@pytest.mark.parametrize("native", sorted(OWNED))
def test_a_key_that_a_neutral_key_owns_is_refused_with_its_name(native: str) -> None:
    config: Any = 1
    for part in reversed(native.split(".")):
        config = {part: config}
    assert any(
        f"backend.config.{native}" in message and f"set {OWNED[native]}" in message for message in messages(config)
    )


def test_owned_keys_exist_in_torchtitan() -> None:
    schema = load_schema("0.3")
    placed = schema["placed"] | {"activation_checkpoint": f"{AC}.MemoryBudgetAC.Config"}
    for native in OWNED:
        group, _, key = native.rpartition(".")
        assert key in schema["classes"][placed[group]]["fields"], native


def test_owners_are_neutral_keys() -> None:
    neutral = set(schema_keys(JobConfig))
    groups = {f"{key.rpartition('.')[0]}.*" for key in neutral}
    for owner in OWNED.values():
        for name in owner.split(" and "):
            assert name in neutral | groups | {"tracker.*"}, name


def test_every_problem_is_reported_at_once() -> None:
    config = {"training": {"gc_freg": 1, "steps": 5}, "comm": {"mode": "fast"}, "debugging": {}}
    assert len(messages(config)) == 4


def test_an_unsupported_version_has_no_keys() -> None:
    with pytest.raises(HostError):
        check_native({}, "0.2.2")
