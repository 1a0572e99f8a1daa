from __future__ import annotations

import sys
from typing import Any

import pytest

from primus_hydra.backends.megatron import native_keys
from primus_hydra.backends.megatron.native_keys import check_native, load_schema
from primus_hydra.backends.megatron.owned import OWNED
from primus_hydra.backends.megatron.versions import RELEASES
from primus_hydra.config.build import schema_keys
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError

FEW_OWNED = {"transformer.num_layers": "model.num_hidden_layers", "transformer.bf16": "precision.compute"}
"""Enough to see how owned keys are treated, whichever the translation owns."""


@pytest.fixture
def few_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_keys, "OWNED", FEW_OWNED)


def messages(
    config: dict[str, Any], version: str = "0.16.1", *, mla: bool = False, has_dataset: bool = False
) -> list[str]:
    return [str(problem) for problem in check_native(config, version, mla=mla, has_dataset=has_dataset)]


@pytest.mark.usefixtures("few_owned")
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"transformer": {"persist_layer_norm": True, "attention_dropout": 0, "window_size": [128, 0]}},
        {"transformer": {"attention_backend": "local", "autocast_dtype": None, "recompute_modules": ["core_attn"]}},
        {"transformer": {"cuda_graph_scope": ["attn"], "pipeline_model_parallel_layout": [["embedding"], ["loss"]]}},
        {"transformer": {"pipeline_dtype": None, "fp8": "e4m3", "moe_layer_freq": [0, 1]}},
        {"optimizer": {"exp_avg_dtype": "bfloat16", "exp_avg_sq_dtype": "torch.float16", "sgd_momentum": 1}},
        {"ddp": {"bucket_size": 40_000_000, "suggested_communication_unit_size": None}},
        {"batch": {"rampup": [2, 2, 16]}},
        {"parallel": {"order": "tp-cp-ep-pp-dp"}},
        {"checkpoint": {"optimizer_format": "dp_reshardable"}},
        {"loop": {"garbage_collect_every": None}},
        {"model": {"_target_": "primus_hydra.elsewhere.HybridModel", "anything": 1}},
    ],
)
def test_good_native_keys_pass(config: dict[str, Any]) -> None:
    assert messages(config) == []


@pytest.mark.usefixtures("few_owned")
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"optimiser": {}}, "backend.config.optimiser: megatron has no such key here"),
        ({"optimiser": {}}, "did you mean backend.config.optimizer?"),
        ({"ddp": {"buket_size": 1}}, "did you mean backend.config.ddp.bucket_size?"),
        ({"optimizer": {"bucket_size": 1}}, "did you mean backend.config.ddp.bucket_size?"),
        ({"bucket_size": 1}, "did you mean backend.config.ddp.bucket_size?"),
        ({"transformer": {"num_layer": 1}}, "did you mean model.num_hidden_layers?"),
        ({"optimizer": {"num_layers": 1}}, "did you mean model.num_hidden_layers?"),
        ({"schedule": {"lr_decay_iters": 1}}, "lr_decay_iters is called lr_schedule.decay_steps here"),
        ({"transformer": {"zzz": 1}}, "are the fields of megatron.core.transformer.transformer_config.Transformer"),
        ({"loop": {"zzz": 1}}, "keys here: garbage_collect_every, profile_ranks"),
        ({"transformer": None}, "backend.config.transformer: expects a group of keys, not null"),
        ({"model": [1]}, "expects a group of keys, not the list [1]"),
        ({"transformer": {"persist_layer_norm": 1}}, "expects true or false, not 1"),
        ({"transformer": {"ffn_hidden_size": 1.5}}, "expects a whole number or null, not 1.5"),
        ({"transformer": {"ffn_hidden_size": True}}, "expects a whole number or null, not true"),
        ({"transformer": {"attention_dropout": "0.1"}}, "expects a number, not the text '0.1'"),
        ({"transformer": {"normalization": "RMSnorm"}}, "did you mean RMSNorm?"),
        ({"transformer": {"fp8": "e5m2"}}, "expects one of e4m3, hybrid or null, not the text 'e5m2'"),
        ({"transformer": {"attention_backend": "flsh"}}, "expects one of flash, fused, unfused, local, auto"),
        ({"transformer": {"attention_backend": "flsh"}}, "did you mean flash?"),
        ({"transformer": {"recompute_modules": "mlp"}}, "expects a list of texts or null, not the text 'mlp'"),
        ({"transformer": {"window_size": [1]}}, "expects a list of 2 items or null, not the list [1]"),
        ({"transformer": {"moe_layer_freq": "1"}}, "expects a whole number or a list of whole numbers"),
        ({"optimizer": {"exp_avg_dtype": "bf16"}}, "did you mean bfloat16?"),
        ({"optimizer": {"exp_avg_dtype": "bf16"}}, "expects a dtype such as float32 or bfloat16, not the text 'bf16'"),
        ({"optimizer": {"exp_avg_dtype": "torch.nn"}}, "expects a dtype"),
        ({"optimizer": {"exp_avg_dtype": 16}}, "expects a dtype such as float32 or bfloat16, not 16"),
        ({"transformer": {"activation_func": "torch.nn.functional.silu"}}, "can only be set by code"),
        ({"transformer": {"init_method": None}}, "can only be set by code"),
        ({"optimizer": {"timers": "x"}}, "backend.config.optimizer.timers: can only be set by code"),
        ({"transformer": {"_cpu_offloading_context": 1}}, "can only be set by code"),
        ({"stop_agreed": 1}, "can only be set by code"),
        ({"batch": {"rampup": [1, "2"]}}, "expects a list of whole numbers or null, not the list [1, '2']"),
        ({"model": {"_target_": "os.path.join"}}, "os is not a package that a configuration may name"),
        ({"model": {"_target_": 3}}, "expects the import path of a class, not 3"),
        (
            {"model": {"_target_": "primus_hydra.backends.megatron.sections.Loop"}},
            "Loop is not a primus_hydra.backends",
        ),
        ({"transformer": {"_target_": "a.B"}}, "transformer._target_: only the model section may name another class"),
        ({"_target_": "a.B"}, "backend.config._target_: only the model section may name another class"),
        ({"dataset": {"num_dataset_builder_threads": 2}}, "set data=megatron, or leave them out"),
    ],
)
def test_a_wrong_native_key_is_explained(config: dict[str, Any], expected: str) -> None:
    found = messages(config)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.usefixtures("few_owned")
@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("optimizer.config_logger_dir", "set backend.config.transformer.config_logger_dir"),
        ("optimizer.barrier_with_L1_time", "set backend.config.transformer.barrier_with_L1_time"),
        ("ddp.delay_wgrad_compute", "set backend.config.transformer.delay_wgrad_compute"),
        ("ddp.overlap_param_gather", "set backend.config.optimizer.overlap_param_gather"),
        ("ddp.use_distributed_optimizer", "set backend.config.optimizer.use_distributed_optimizer"),
        ("optimizer.bf16", "set precision.compute"),
    ],
)
def test_a_shared_key_is_refused_away_from_its_home(path: str, hint: str) -> None:
    section, _, key = path.partition(".")
    found = messages({section: {key: True}})
    assert len(found) == 1
    assert f"backend.config.{path}: is set once for all of Megatron's classes, in " in found[0]
    assert hint in found[0]


def test_keys_of_the_dataset_may_be_set_where_the_data_are_megatrons() -> None:
    assert messages({"dataset": {"num_dataset_builder_threads": 2}}, has_dataset=True) == []
    found = messages({"dataset": {"num_dataset_builder_threads": "2"}}, has_dataset=True)
    assert "expects a whole number" in found[0]


@pytest.mark.usefixtures("few_owned")
def test_keys_of_latent_attention_may_be_set_where_the_model_has_it() -> None:
    config = {"transformer": {"cache_mla_latents": True}}
    assert "megatron has no such key here" in messages(config)[0]
    assert messages(config, mla=True) == []


def test_each_release_has_its_own_keys() -> None:
    config = {"transformer": {"moe_use_legacy_grouped_gemm": True}}
    assert messages(config) == []
    assert "megatron has no such key here" in messages(config, "0.19.2")[0]


@pytest.mark.parametrize("native", sorted(OWNED))
def test_a_key_that_a_neutral_key_owns_is_refused_with_its_name(native: str) -> None:
    config: Any = 1
    for part in reversed(native.split(".")):
        config = {part: config}
    found = messages(config, has_dataset=True)
    assert found == [f"backend.config.{native}: has a neutral key\n    set {OWNED[native]}"]


@pytest.mark.parametrize("native", [key for key in sorted(OWNED) if not key.startswith("transformer.yarn_")])
def test_owned_keys_exist_in_megatron(native: str) -> None:
    section, _, key = native.partition(".")
    sections = load_schema("sections")
    names = {sections["placed"][section]} | ({sections["mla"]} if section == "transformer" else set())
    classes = [load_schema(file)["classes"] for file in ("sections", *(release.name for release in RELEASES))]
    assert any(key in found[name]["fields"] for found in classes for name in names if name in found)


@pytest.mark.parametrize("owner", sorted(set(OWNED.values())))
def test_owners_are_keys_that_can_be_set(owner: str) -> None:
    keys = set(schema_keys(JobConfig))
    if owner.startswith("backend.config."):
        _, _, section, key = owner.split(".")
        sections = load_schema("sections")
        assert key in sections["classes"][sections["placed"][section]]["fields"]
    else:
        assert owner in keys or any(key.startswith(f"{owner}.") for key in keys)


def test_every_problem_is_reported_at_once() -> None:
    config = {
        "transformer": {"zzz": 1, "attention_backend": 1},
        "ddp": {"overlap_param_gather": True},
        "dataset": {},
        "loops": {},
    }
    assert len(messages(config)) == 5


def test_an_unsupported_version_has_no_keys() -> None:
    with pytest.raises(HostError):
        check_native({}, "0.12.0", mla=False, has_dataset=False)


def test_checking_needs_neither_torch_nor_megatron() -> None:
    import subprocess

    code = (
        "import sys; from primus_hydra.backends.megatron.native_keys import check_native\n"
        "assert check_native({'ddp': {'x': 1}}, None, mla=False, has_dataset=False)\n"
        "assert not {'torch', 'megatron'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
