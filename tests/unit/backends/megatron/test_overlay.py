"""Everything here builds Megatron's own classes, so it needs torch; the rest of the native keys is tested without."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.backends.megatron import native_keys
from primus_hydra.backends.megatron.native_keys import check_native
from primus_hydra.config.allow import AllowList, installed_allow_list
from primus_hydra.native.check import DTYPES

OWNED = {"transformer.num_layers": "model.num_hidden_layers"}
TRANSFORMER = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "init_method_std": 0.5,
    "add_bias_linear": False,
}


@pytest.fixture(autouse=True)
def few_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_keys, "OWNED", OWNED)


def stop_agreed(step: int) -> bool:
    return step == 3


def neutral(**changes: Any) -> dict[str, tuple[type[Any], dict[str, Any]]]:
    from primus_hydra.backends.megatron import sections as classes

    schedule = {
        "warmup_steps": 1,
        "decay": "cosine",
        "decay_steps": None,
        "min_lr_ratio": 0.1,
        "steps": 10,
        "start_weight_decay": 0.1,
        "end_weight_decay": 0.1,
    }
    return {
        "transformer": (classes.TransformerConfig, TRANSFORMER),
        "optimizer": (classes.OptimizerConfig, {"optimizer": "adam", "lr": 1e-3}),
        "ddp": (classes.DistributedDataParallelConfig, {}),
        "model": (classes.GptModel, {"vocab_size": 512, "max_sequence_length": 128, "rotary_base": 500}),
        "schedule": (classes.Schedule, schedule),
        "batch": (classes.Batch, {}),
        "parallel": (classes.ParallelState, {}),
        "checkpoint": (classes.Checkpoint, {}),
        "loop": (classes.Loop, {}),
        **changes,
    }


def build(tree: dict[str, Any], **changes: Any) -> Any:
    from primus_hydra.backends.megatron.overlay import build_core

    config, problems = build_core(neutral(**changes), tree, stop_agreed=stop_agreed)
    assert problems == []
    return config


def problems_of(tree: dict[str, Any], **changes: Any) -> list[str]:
    from primus_hydra.backends.megatron.overlay import build_core

    config, problems = build_core(neutral(**changes), tree, stop_agreed=stop_agreed)
    assert config is None
    return [str(problem) for problem in problems]


def value_at(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = getattr(config, part)
    return config


def nested(path: str, value: Any) -> dict[str, Any]:
    section, _, key = path.partition(".")
    return {section: {key: value}}


def test_the_data_files_describe_the_real_classes() -> None:
    from primus_hydra.backends.megatron.schema.generate import data_files

    for path, text in data_files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run schema/generate.py again"


def test_every_dtype_that_may_be_named_exists() -> None:
    import torch

    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES)


def test_without_native_keys_everything_is_as_the_neutral_keys_say() -> None:
    config = build({})
    assert (config.transformer.num_layers, config.optimizer.lr, config.model.vocab_size) == (2, 1e-3, 512)
    assert config.dataset is None
    assert [config.stop_agreed(step) for step in (2, 3)] == [False, True]


@pytest.mark.parametrize(
    ("path", "raw", "value"),
    [
        ("transformer.attention_dropout", 0, 0.0),
        ("transformer.ffn_hidden_size", 96, 96),
        ("transformer.window_size", [128, 0], (128, 0)),
        ("transformer.moe_router_load_balancing_type", "sinkhorn", "sinkhorn"),
        ("optimizer.loss_scale", 128, 128.0),
        ("optimizer.log_num_zeros_in_grad", True, True),
        ("ddp.bucket_size", 1000, 1000),
        ("model.rotary_percent", 0.5, 0.5),
        ("schedule.end_weight_decay", 1, 1.0),
        ("batch.rampup", [2, 2, 8], [2, 2, 8]),
        ("parallel.order", "tp-cp-ep-pp-dp", "tp-cp-ep-pp-dp"),
        ("checkpoint.fully_parallel_save", True, True),
        ("loop.garbage_collect_every", None, None),
    ],
)
def test_a_value_reaches_the_object_as_its_type(path: str, raw: Any, value: Any) -> None:
    found = value_at(build(nested(path, raw)), path)
    assert (found, type(found)) == (value, type(value))


def test_dtypes_and_enums_are_given_by_name() -> None:
    import torch
    from megatron.core.transformer.enums import AttnBackend

    keys = {"autocast_dtype": "torch.bfloat16", "pipeline_dtype": "float16", "attention_backend": "unfused"}
    transformer = build({"transformer": keys}).transformer
    assert (transformer.autocast_dtype, transformer.pipeline_dtype) == (torch.bfloat16, torch.float16)
    assert transformer.attention_backend is AttnBackend.unfused


def test_a_user_value_wins_over_the_neutral_one() -> None:
    assert build({"model": {"rotary_base": 7}}).model.rotary_base == 7.0


def test_what_megatron_computes_follows_from_the_users_value() -> None:
    import torch

    def spread_of(initialise: Any) -> float:
        torch.manual_seed(0)
        return float(initialise(torch.empty(200, 200)).std())

    plain, wide = build({}).transformer, build({"transformer": {"init_method_std": 2.0}}).transformer
    assert spread_of(plain.init_method) == pytest.approx(0.5, rel=0.02)
    assert spread_of(wide.init_method) == pytest.approx(2.0, rel=0.02)
    assert spread_of(wide.output_layer_init_method) == pytest.approx(1.0, rel=0.02)
    assert wide.embedding_init_method_std == 2.0


def test_a_shared_key_reaches_every_class_that_has_it() -> None:
    config = build({"transformer": {"config_logger_dir": "logs", "delay_wgrad_compute": False, "bf16": True}})
    assert (config.transformer.config_logger_dir, config.optimizer.config_logger_dir) == ("logs", "logs")
    assert (config.transformer.bf16, config.optimizer.bf16) == (True, True)
    shared = build({"optimizer": {"use_distributed_optimizer": True}})
    assert (shared.optimizer.use_distributed_optimizer, shared.ddp.use_distributed_optimizer) == (True, True)


def test_a_shared_dtype_reaches_both_classes_as_a_dtype() -> None:
    import torch

    config = build({"transformer": {"params_dtype": "bfloat16", "bf16": True}})
    assert config.transformer.params_dtype is config.optimizer.params_dtype is torch.bfloat16


def test_what_megatron_refuses_is_a_problem_of_its_section() -> None:
    found = problems_of({"transformer": {"recompute_granularity": "full"}})
    assert len(found) == 1
    assert found[0].startswith("backend.config.transformer: megatron refuses these values: ")


def test_refusals_of_several_classes_come_together() -> None:
    bad = {"transformer": {"recompute_granularity": "full"}, "optimizer": {"use_precision_aware_optimizer": True}}
    found = [message.partition(":")[0] for message in problems_of(bad)]
    assert found == ["backend.config.transformer", "backend.config.optimizer"]


def test_multi_latent_attention_has_its_own_keys() -> None:
    from megatron.core.transformer import MLATransformerConfig

    config = build({"transformer": {"kv_lora_rank": 16}}, transformer=(MLATransformerConfig, TRANSFORMER))
    assert (type(config.transformer), config.transformer.kv_lora_rank) == (MLATransformerConfig, 16)


def test_our_own_class_for_yarn_has_the_fields_that_are_owned_in_its_name() -> None:
    from primus_hydra.backends.megatron.models.rope import YarnTransformerConfig
    from primus_hydra.backends.megatron.owned import OWNED

    names = {field.name for field in dataclasses.fields(YarnTransformerConfig)}
    assert {key.partition(".")[2] for key in OWNED if key.startswith("transformer.yarn_")} <= names


def test_a_dataset_is_built_where_there_is_one() -> None:
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig

    arguments = {
        "random_seed": 1,
        "sequence_length": 64,
        "reset_position_ids": False,
        "reset_attention_mask": False,
        "eod_mask_loss": False,
    }

    class Tokenizer:
        vocab_size = 512

    whole = {**arguments, "tokenizer": Tokenizer()}
    config = build({"dataset": {"num_dataset_builder_threads": 2}}, dataset=(GPTDatasetConfig, whole))
    assert (config.dataset.num_dataset_builder_threads, config.dataset.sequence_length) == (2, 64)
    found = problems_of({}, dataset=(GPTDatasetConfig, arguments))
    assert found == ["backend.config.dataset: megatron refuses these values: assert self.tokenizer is not None"]


PLUGIN = """
from dataclasses import dataclass, field
from primus_hydra.backends.megatron.sections import GptModel

@dataclass(kw_only=True)
class HybridModel(GptModel):
    rotary_base: float = field(init=False, default=3.0)
    stride: float = 1.0

@dataclass
class Other:
    stride: float = 1.0

class Plain:
    pass
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package `odd_models` that declares itself."""
    (tmp_path / "odd_models.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    allowed = AllowList(prefixes=(*installed_allow_list().prefixes, "odd_models"))
    for module in ("config.instantiate", "native.targets"):
        monkeypatch.setattr(f"primus_hydra.{module}.installed_allow_list", lambda: allowed)


@pytest.mark.usefixtures("plugin")
def test_another_model_takes_over_the_neutral_values_that_it_has() -> None:
    model = build({"model": {"_target_": "odd_models.HybridModel", "stride": 2}}).model
    assert type(model).__qualname__ == "HybridModel"
    assert (model.vocab_size, model.max_sequence_length, model.stride) == (512, 128, 2.0)
    assert model.rotary_base == 3.0


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"_target_": "odd_models.Other"},
            "Other is not a primus_hydra.backends.megatron.sections.GptModel",
        ),
        ({"_target_": "odd_models.Plain"}, "odd_models.Plain is not a configuration class"),
        ({"_target_": "odd_models.Missing"}, "odd_models has no Missing"),
        ({"_target_": "odd_models.HybridModel", "strid": 1}, "did you mean backend.config.model.stride?"),
        ({"_target_": "megatron.core.models.gpt.GPTModel"}, "megatron is not a package that a configuration may name"),
    ],
)
def test_a_wrong_model_is_explained(keys: dict[str, Any], expected: str) -> None:
    found = problems_of({"model": keys})
    assert len(found) == 1
    assert expected in found[0]


def test_the_rank_finds_the_same_problems_as_the_command() -> None:
    import megatron.core

    tree = {
        "transformer": {"num_layers": 3, "init_methods": "x", "attention_backend": "flsh", "_target_": "a.B"},
        "optimizer": {"exp_avg_dtype": "bf16", "bf16": True},
        "ddp": {"overlap_param_gather": True, "zzz": 1},
        "dataset": {"split": "1"},
        "model": {"_target_": "os.path.join"},
        "loops": {},
    }
    before = check_native(tree, megatron.core.__version__, mla=False, has_dataset=False)
    assert problems_of(tree) == [str(problem) for problem in before]
    assert len(before) == 11
