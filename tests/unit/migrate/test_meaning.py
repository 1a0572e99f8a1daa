"""What keys of other launchers mean here: rules, tables and the choice of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.megatron.native_keys import check_native
from primus_hydra.backends.megatron.training.adapter import MegatronTrainingAdapter
from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter
from primus_hydra.config.keys import facts_of
from primus_hydra.migrate import megatron_rules, titan_rules
from primus_hydra.migrate.given import Given
from primus_hydra.migrate.layer_pattern import layer_pattern
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.megatron_arguments import read_arguments
from primus_hydra.migrate.migration import Framework, migrate
from primus_hydra.migrate.recipe import Recipe
from primus_hydra.migrate.titan_file import read_function

MEGATRON = MegatronAdapter.vocabulary()
TITAN = TorchTitanAdapter.vocabulary()


def account(keys: dict[str, Any], *, complete: bool = True, preset: str | None = None) -> Ledger:
    given = {name: Given(value=value, where="here") for name, value in keys.items()}
    titan = any("." in name for name in keys)
    recipe = Recipe(
        kind="torchtitan" if titan else "megatron",
        title="test.yaml",
        framework="torchtitan" if titan else "megatron",
        keys=given,
        complete=complete,
        preset=preset,
    )
    vocabulary = TITAN if titan else MEGATRON
    return migrate(recipe, Framework(backend=recipe.framework or "", vocabulary=vocabulary))


def said(keys: dict[str, Any], key: str) -> Any:
    return account(keys).settings[key].value


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("([0]*3+[1]*2)", [0, 0, 0, 1, 1]),
        ("[0] + 4*[1]", [0, 1, 1, 1, 1]),
        ([0, 1, 0, 1, 0], [0, 1, 0, 1, 0]),
        (1, [1, 1, 1, 1, 1]),
        (2, [1, 0, 1, 0, 1]),
        ("2", [1, 0, 1, 0, 1]),
        ("[1]*4", None),
        ("[2]*5", None),
        ("__import__('os').system('true')", None),
        ("[0]*10**9", None),
        ("[0]*1000000000", None),
        ("(", None),
        (0, None),
        (True, None),
    ],
)
def test_a_pattern_of_layers_is_read_and_never_run(value: Any, pattern: list[int] | None) -> None:
    assert layer_pattern(value, 5) == pattern


@pytest.mark.parametrize(
    ("keys", "key", "value"),
    [
        ({"lr": 2e-4, "min_lr": 2e-5}, "lr_schedule.min_lr_ratio", 0.1),
        ({"lr": "2e-4"}, "optimizer.lr", 2e-4),
        ({"train_samples": 1000, "global_batch_size": 10}, "training.steps", 100),
        ({"train_iters": 100, "lr_warmup_fraction": 0.05}, "lr_schedule.warmup_steps", 5),
        ({"bf16": True}, "precision.compute", "bfloat16"),
        ({"fp16": True}, "precision.compute", "float16"),
        ({"train_iters": 1}, "precision.compute", "float32"),
        ({"recompute_activations": True}, "recompute.mode", "selective"),
        ({"use_megatron_fsdp": True}, "parallel.sharding", "full"),
        ({"num_layers": 16, "pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 4},
         "parallel.vpp", 2),
        ({"num_experts": 8, "tensor_model_parallel_size": 2}, "parallel.etp", 2),
        ({"clip_grad": 0.0}, "training.max_grad_norm", 1e9),
        ({"data_path": ["0.3 /a", "0.7 /b"]}, "data.path", ["0.3", "/a", "0.7", "/b"]),
        ({"split": "9,1"}, "data.validation_fraction", 0.1),
        ({"pretrained_checkpoint": "/w"}, "init_from", "/w"),
        ({"optimizer.name": "Adam"}, "optimizer.name", "adam"),
        ({"training.steps": 10, "lr_scheduler.decay_ratio": 0.5}, "lr_schedule.decay_steps", 5),
        ({"training.local_batch_size": 2, "parallelism.data_parallel_shard_degree": 4},
         "training.global_batch_size", 8),
        ({"checkpoint.initial_load_path": "/w", "checkpoint.initial_load_in_hf": True}, "init_from", "hf:/w"),
        ({"checkpoint.async_mode": "async_with_pinned_mem"}, "checkpoint.async_mode", "async_pinned"),
        ({"parallelism.pipeline_parallel_schedule": "Interleaved1F1B"}, "parallel.vpp", 2),
        ({"model.converters": ["float8"], "float8.recipe_name": "rowwise"}, "precision.fp8", "rowwise"),
        ({"quantize.linear.float8.filter_fqns": ["output"]}, "precision.fp8_exclude", ["lm_head"]),
        ({"profiling.profile_freq": 7}, "profiler.every", 7),
    ],
)  # fmt: skip
def test_a_value_keeps_its_meaning(keys: dict[str, Any], key: str, value: Any) -> None:
    assert said(keys, key) == value


def test_what_is_not_given_has_the_default_of_the_other_launcher_only_where_presets_are_known() -> None:
    filled, unknown = account({"lr": 1.0}), account({"lr": 1.0}, complete=False)

    assert filled.settings["optimizer.beta2"].value == 0.999
    assert not filled.settings["optimizer.beta2"].explicit
    assert filled.settings["backend.config.transformer.attention_dropout"].value == 0.1
    assert set(unknown.settings) == {"optimizer.lr"}


@pytest.mark.parametrize(
    ("keys", "name", "fate", "reason"),
    [
        ({"norm_epsilon": 1e-6}, "norm_epsilon", "dead", "the run used 1e-05"),
        ({"auto_continue_train": True}, "auto_continue_train", "dead", "resume=auto"),
        ({"retro_add_retriever": True}, "retro_add_retriever", "dead", "removed"),
        ({"encoder_pipeline_model_parallel_size": 1}, "encoder_pipeline_model_parallel_size", "dead", "removed"),
        ({"tran_iters": 1}, "tran_iters", "unknown", "train_iters"),
        ({"enable_primus_turbo": True}, "enable_primus_turbo", "unsupported", "Primus-Turbo"),
        ({"enable_primus_turbo": False}, "enable_primus_turbo", "default", None),
        ({"normalization": "LayerNorm"}, "normalization", "changed", "RMSNorm"),
        ({"optimizer": "muon"}, "optimizer", "unsupported", "muon"),
        ({"fp8": "hybrid", "fp8_recipe": "mxfp8"}, "fp8_recipe", "unsupported", "mxfp8"),
        ({"train_iters": 10, "lr_decay_iters": 5}, "lr_decay_iters", "changed", "step 5"),
        ({"train_iters": 10, "lr_decay_iters": 10}, "lr_decay_iters", "translated", None),
        ({"eod_mask_loss": True}, "eod_mask_loss", "changed", "document_mask"),
        ({"moe_layer_freq": "[1]*3", "num_layers": 4, "num_experts": 2}, "moe_layer_freq", "unsupported", "4 layers"),
        ({"rotary_scaling_factor": 40}, "rotary_scaling_factor", "dead", "multi_latent_attention"),
        ({"load": "/x", "save": "/x"}, "load", "translated", "resume=auto"),
        ({"load": "/x"}, "load", "unsupported", "init_from"),
        ({"exit_signal_handler": True}, "exit_signal_handler", "unsupported", "launcher"),
        ({"adam_beta1": 0.9}, "adam_beta1", "translated", None),
        ({"log_throughput": False}, "log_throughput", "default", None),
        ({"moe_z_loss_coeff": 1e-3}, "moe_z_loss_coeff", "passed", None),
        ({"no_persist_layer_norm": True}, "no_persist_layer_norm", "passed", None),
        ({"trainnig.steps": 1}, "trainnig.steps", "unknown", "training.steps"),
        ({"fault_tolerance.enable": True}, "fault_tolerance.enable", "unsupported", "experiment"),
    ],
)
def test_a_key_is_told_with_its_reason(keys: dict[str, Any], name: str, fate: str, reason: str | None) -> None:
    entry = account(keys).entries[name]

    assert entry.fate == fate
    assert reason is None or reason in str(entry.reason)


def test_a_value_that_our_key_cannot_take_is_told_and_not_written() -> None:
    ledger = account({"adam_beta1": 1.5, "seq_length": "long"})

    assert ledger.entries["seq_length"].fate == "unsupported"
    assert "training.seq_length" not in ledger.settings


@pytest.mark.parametrize(
    ("vocabulary", "same"),
    [
        (MEGATRON, megatron_rules.SAME),
        (MegatronTrainingAdapter.vocabulary(), megatron_rules.SAME),
        (TITAN, titan_rules.SAME),
    ],
)
def test_what_is_only_another_name_is_a_key_of_ours(vocabulary: Any, same: frozenset[str]) -> None:
    owners = {name: vocabulary.keys[name].owner for name in same}

    assert {name: owner for name, owner in owners.items() if facts_of(str(owner)).kind != "leaf"} == {}


def test_each_key_of_a_backend_is_owned_placed_or_refused_with_a_reason() -> None:
    for vocabulary in (MEGATRON, MegatronTrainingAdapter.vocabulary(), TITAN):
        for name, known in vocabulary.keys.items():
            assert [bool(known.owner), bool(known.place), bool(known.refused)].count(True) == 1, name


def test_a_place_is_one_that_the_check_of_native_keys_accepts() -> None:
    for name in ("moe_z_loss_coeff", "overlap_grad_reduce", "no_persist_layer_norm", "manual_gc_interval"):
        known = MEGATRON.keys[name]
        section, field = str(known.place).split(".")
        value = known.spelled({"int": 5, "bool": True, "float": 0.5}[_kind(known.node)])
        assert check_native({section: {field: value}}, mla=False, has_dataset=False) == [], name


def _kind(node: dict[str, Any]) -> str:
    return str(node["any_of"][0]["type"]) if node["type"] == "union" else str(node["type"])


LLAMA = {
    **{"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "num_attention_heads": 32},
    **{"group_query_attention": True, "num_query_groups": 8, "rotary_base": 500000, "swiglu": True},
    **{"max_position_embeddings": 8192, "untie_embeddings_and_output_weights": True, "kv_channels": 128},
}


def test_a_model_of_ours_is_found_by_its_sizes_and_needs_no_keys() -> None:
    ledger = account(LLAMA)

    assert ledger.choices["model"] == "llama3_8b"
    assert [key for key in ledger.settings if key.startswith("model.")] == []


def test_what_the_recipe_says_of_a_model_wins_and_its_defaults_do_not() -> None:
    ledger = account({**LLAMA, "rotary_base": 10000, "num_layers": 4}, preset="llama3.1_8B.yaml")
    notes = "\n".join(ledger.notes)

    assert ledger.choices["model"] == "llama3_1_8b"
    assert {key: s.value for key, s in ledger.settings.items() if key.startswith("model.")} == {
        "model.rope_theta": 10000.0,
        "model.num_hidden_layers": 4,
        "model.max_position_embeddings": 8192,
    }
    assert "model.rope_scaling.rope_type=null" in notes


def test_a_model_that_we_lack_is_written_whole() -> None:
    ledger = account({**LLAMA, "hidden_size": 4160, "num_attention_heads": 65}, preset="mine-1.B.yaml")

    assert ledger.choices["model"] == "null"
    assert ledger.settings["model.name"].value == "mine_1_b"
    assert ledger.settings["model.hidden_size"].value == 4160


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("--num-layers 4 --swiglu --disable-bias-linear", {"num_layers": 4, "swiglu": True, "add_bias_linear": False}),
        ("--norm-epsilon=1e-6", {"layernorm_epsilon": 1e-6}),
        ("--data-path 0.5 /a 0.5 /b", {"data_path": ["0.5", "/a", "0.5", "/b"]}),
        ("N=3\n--num-layers $N # three\n", {"num_layers": 3}),
        ("--num-layers ${N:-5}", {"num_layers": 5}),
        ("torchrun --standalone train.py --num-layers 2", {"num_layers": 2}),
        ("ARGS=(\n  --num-layers 2 \\\n  --lr 1e-3\n)\n", {"num_layers": 2, "lr": 1e-3}),
    ],
)
def test_an_argument_list_is_read_by_megatrons_own_types(text: str, keys: dict[str, Any]) -> None:
    recipe = read_arguments(text, MEGATRON, title="x", environment={})

    assert {name: given.value for name, given in recipe.keys.items()} == keys


def test_a_function_is_read_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "recipe.py"
    file.write_text(
        "def small():\n"
        "    config = Trainer.Config(training=TrainingConfig(steps=2, seq_len=64), model_spec=model_registry('1B'))\n"
        "    config.training.steps = 5\n"
        "    config.activation_checkpoint = FullAC.Config()\n"
        "    return config\n"
        "raise SystemExit('this was run')\n"
    )
    keys = {name: given.value for name, given in read_function(file, None).keys.items()}

    assert keys == {
        "training.steps": 5,
        "training.seq_len": 64,
        "model.flavor": "1B",
        "activation_checkpoint.mode": "full",
    }
    assert json.dumps(keys)
