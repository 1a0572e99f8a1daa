"""Keys of Primus's own: those that its launcher consumes, those that nobody reads, and those of its own kernels.

What is dead there is told as dead: the run never had what the key promised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from primus_hydra.config.key_table import plain
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.native.vocabulary import Vocabulary

_LOGS: Final = "its launcher's own logs; each rank has a log in the run's folder here"
_CONSUMED: Final[dict[str, str]] = {
    "trainable": "its launcher reads it to tell modules apart; there is one module here",
    "sink_level": _LOGS,
    "file_sink_level": _LOGS,
    "stderr_sink_level": _LOGS,
    "stage": "its launcher reads it; the stage is module= here",
    "framework": "its launcher reads it; the backend is backend= here",
    "trainer_class": "a trainer of one's own is backend.trainer here, a class of this project's contract",
}
_RESUME: Final = "nothing reads it; a run goes on from its newest checkpoint here: resume=auto"
_REMOVED: Final = "Megatron has removed it"
_DEAD: Final[dict[str, str]] = {
    "auto_continue_train": _RESUME,
    "mlflow_upload_performance_metrics": "nothing reads it; tracker=mlflow has all metrics here",
    "patch_moe_overlap": "nothing reads it",
    "disable_compile_dependencies": "nothing reads it",
    "attn_logit_softcapping": "nothing reads it: the logits were never capped",
    "final_logit_softcapping": "nothing reads it: the logits were never capped",
    "export_config": "it is parsed and never used; every run keeps its resolved config.yaml here",
    "standalone_embedding_stage": _REMOVED,
    "pipeline_model_parallel_split_rank": _REMOVED,
    "moe_extended_tp": _REMOVED,
    "moe_use_legacy_grouped_gemm": _REMOVED,
    "legacy_tokenizer": _REMOVED,
    "apply_layernorm_1p": _REMOVED,
    "log_batch_size_to_tensorboard": _REMOVED,
    "log_learning_rate_to_tensorboard": _REMOVED,
    "retriever_seq_length": _REMOVED,
    "keep_fp8_transpose_cache_when_using_custom_fsdp": "nothing reads it",
}
_DEAD_PATTERNS: Final = (
    (re.compile(r"retro_\w+"), _REMOVED),
    (re.compile(r"encoder_\w+_parallel_size"), _REMOVED),
    (re.compile(r"(rl|langrl|grpo)_\w+"), "pretraining reads none of it"),
    (re.compile(r"inference_dynamic_batching_\w+"), "pretraining reads none of it"),
)
_OWN: Final = (
    (re.compile(r"(enable_primus_turbo|primus_turbo\..+|use_turbo_\w+|turbo_\w+|enable_turbo_\w+)"),
     "kernels of Primus-Turbo, which no patch here brings in"),
    (re.compile(r"(patch_zero_bubble|zero_bubble_\w+|enable_zero_bubble|zb_\w+|patch_primus_pipeline|pp_\w+)"),
     "pipeline schedules of Primus's own; torchtitan's are named by parallel.pipeline_schedule"),
    (re.compile(r"(dump_pp_data|pp_data_\w+)"), "a picture of its pipeline; traces are profiler.* here"),
    (re.compile(r"mlflow_\w+"), "its uploads; tracker=mlflow sends metrics here"),
    (re.compile(r"(tracelens|generate_tracelens)\w*"), "reports that Primus makes of traces"),
    (re.compile(r"log_avg_\w+"), "averages of its log line; metrics.jsonl has every logged step here"),
    (re.compile(r"weight_deosc\w*"), "a change of the update rule that Primus brings"),
    (re.compile(r"odc_\w+"), "communication of Primus's own"),
    (re.compile(r"(use_rocm_mem_info|use_rocm_mem_info_iters)"), "its log line; memory_gib is in metrics.jsonl here"),
    (re.compile(r"(disable_last_saving|no_last_save)"), "the last step is always saved here"),
)  # fmt: skip
_TRACKERS: Final = {"disable_tensorboard": "tensorboard", "disable_wandb": "wandb", "disable_mlflow": "mlflow"}


def account_for_primus(ledger: Ledger) -> None:
    """Enter the keys that are Primus's own, whatever the framework."""
    for name in ledger.open():
        fate = _fate(name)
        if fate is None:
            continue
        off = fate[0] == "unsupported" and not ledger.get(name)
        ledger.tell("default" if off else fate[0], None if off else fate[1], name)
    for name, tracker in _TRACKERS.items():
        if ledger.has(name):
            ledger.say(f"tracker.{tracker}.enable", ledger.get(name) is False, name)
    layers = "recompute_layer_ids"
    if ledger.has(layers):
        unset = ledger.get(layers) is None
        reason = "a choice of single layers has no word here: recompute.mode is for all of them"
        ledger.tell("default" if unset else "unsupported", None if unset else reason, layers)


def account_for_ignored_words(ledger: Ledger, vocabulary: Vocabulary) -> None:
    """Enter words of a command line that stand for a key of another name: in YAML nothing reads them."""
    words: Mapping[str, tuple[str, Any]] = {
        flag.lstrip("-").replace("-", "_"): found for flag, found in vocabulary.flags.items()
    }
    for name in ledger.open():
        if name in words and vocabulary.find(name) is None:
            meant = words[name][0]
            default = vocabulary.keys[meant].default
            used = plain(ledger.get(meant) if ledger.has(meant) else default)
            reason = f"{vocabulary.source}'s key is {meant}; under this name the value was ignored: the run used {used}"
            ledger.tell("dead", reason, name)


def _fate(name: str) -> tuple[Any, str] | None:
    if name in _CONSUMED:
        return "dead", _CONSUMED[name]
    if name in _DEAD:
        return "dead", _DEAD[name]
    for pattern, reason in _DEAD_PATTERNS:
        if pattern.fullmatch(name):
            return "dead", reason
    for pattern, reason in _OWN:
        if pattern.fullmatch(name):
            return "unsupported", reason
    return None
