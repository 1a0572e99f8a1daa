"""What Megatron's arguments mean in neutral keys, where it is more than another name.

`SAME` are the arguments whose value is the neutral key's; which key that is, the backend's own table says. A rule reads
every argument of one matter, given or by default, and says what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.megatron_places import data, files, observation, tokenizer
from primus_hydra.migrate.megatron_schedule import learning_rate, length, optimizer

SAME: Final = frozenset(
    {
        *("micro_batch_size", "global_batch_size", "seq_length", "seed", "deterministic_mode"),
        *("adam_beta1", "adam_beta2", "adam_eps", "weight_decay"),
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
        *("expert_model_parallel_size", "sequence_parallel"),
        *("log_interval", "save_interval", "save_retain_interval", "eval_interval"),
        "wandb_entity",
    }
)


def parallel(ledger: Ledger) -> None:
    """Layers per virtual stage are chunks per rank here; experts are split by tensor ranks unless something is said."""
    names = ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage")
    chunks = _chunks(ledger)
    if chunks is None:
        reason = "how many chunks of layers a rank has follows from num_layers, which is not given: set parallel.vpp"
        ledger.tell("unsupported", reason, *names)
    else:
        ledger.say("parallel.vpp", chunks, *names)
        if chunks > 1:
            ledger.say("parallel.pipeline_schedule", "Interleaved1F1B", *names)
    _expert_tensor(ledger)


def _chunks(ledger: Ledger) -> int | None:
    """Return the chunks of layers per rank; None where they cannot be told."""
    stages, per_chunk, layers = (
        ledger.number(name)
        for name in ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage", "num_layers")
    )
    if not per_chunk:
        return int(stages or 1)
    ranks = ledger.number("pipeline_model_parallel_size") or 1
    chunks = layers / ranks / per_chunk if layers else 0.5
    return int(chunks) if chunks >= 1 and chunks.is_integer() else None


def _expert_tensor(ledger: Ledger) -> None:
    name, tp = "expert_tensor_parallel_size", ledger.get("tensor_model_parallel_size") or 1
    size = ledger.get(name)
    if size is None and (ledger.get("num_experts") is None or tp == 1):
        ledger.tell("default", None, name)
    elif ledger.known(name):
        ledger.say("parallel.etp", size if size is not None else tp, name)


def sharding(ledger: Ledger) -> None:
    """ZeRO-1 is Megatron's distributed optimizer, ZeRO-3 one of its two FSDPs; nothing said means copies."""
    full = [name for name in ("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp") if ledger.get(name)]
    names = ("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp", "use_distributed_optimizer")
    word = "full" if full else "optimizer" if ledger.get("use_distributed_optimizer") else "none"
    ledger.say("parallel.sharding", word, *names)
    strategy = "data_parallel_sharding_strategy"
    if ledger.has(strategy):
        _shards(ledger, strategy, full=bool(full))
    instances = ledger.get("num_distributed_optimizer_instances")
    if instances and instances != 1:
        ledger.say("parallel.dp_replicate", instances, "num_distributed_optimizer_instances")
    else:
        ledger.tell("default", None, "num_distributed_optimizer_instances")


def _shards(ledger: Ledger, name: str, *, full: bool) -> None:
    if not full:
        ledger.tell("default", None, name)
    elif ledger.get(name) == "optim_grads_params":
        ledger.tell("translated", "parallel.sharding=full", name)
    else:
        ledger.tell("changed", "parallel.sharding=full shards optimizer, gradients and parameters", name)


def precision(ledger: Ledger) -> None:
    """The format of the products; master weights and gradients' sums are float32 here in any case."""
    word = "bfloat16" if ledger.get("bf16") else "float16" if ledger.get("fp16") else "float32"
    ledger.say("precision.compute", word, "bf16", "fp16")
    names = ("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16")
    low = word == "bfloat16" and (ledger.get(names[1]) or not ledger.get(names[0]))
    if ledger.has(*names):
        reason = "gradients are summed in float32 here, as there is one kind of sum" if low else None
        ledger.say("precision.reduce", "float32", *names, changed=reason)
    _fp8(ledger)


def _fp8(ledger: Ledger) -> None:
    form, recipe = ledger.get("fp8"), ledger.get("fp8_recipe")
    if not form:
        ledger.tell("default", None, "fp8", "fp8_recipe")
    elif recipe in ("tensorwise", "delayed", None):
        told = []
        if recipe != "tensorwise":
            told.append("scales come from the tensor itself here, not from its history (delayed)")
        if form not in ("hybrid", True):
            told.append("gradients are e5m2 here (hybrid)")
        ledger.say("precision.fp8", "tensorwise", "fp8", "fp8_recipe", changed="; ".join(told) or None)
    else:
        ledger.tell(
            "unsupported", f"the fp8 recipe {recipe} has no word here; bfloat16 products are used", "fp8", "fp8_recipe"
        )


def recompute(ledger: Ledger) -> None:
    """Megatron's method and its number of layers are keys of the backend, which stay what they are."""
    names = ("recompute_granularity", "recompute_activations")
    mode = ledger.get("recompute_granularity") or ("selective" if ledger.get("recompute_activations") else "none")
    ledger.say("recompute.mode", mode, *names)
    method, layers = "recompute_method", "recompute_num_layers"
    if mode != "full":
        idle = [name for name in (method, layers) if ledger.get(name)]
        ledger.tell("dead", "it counts only with recompute_granularity: full", *idle)
    elif ledger.get(method) in ("uniform", None) and ledger.get(layers) in (1, None):
        ledger.tell("translated", "recompute.mode=full recomputes each layer by itself", method, layers)


def followers_and_bounds(ledger: Ledger) -> None:
    """Arguments that follow another one unless they say something else, and the bound of the gradients' norm."""
    followers = {
        "start_weight_decay": "weight_decay",
        "end_weight_decay": "weight_decay",
        "encoder_seq_length": "seq_length",
        "eval_micro_batch_size": "micro_batch_size",
        "eval_global_batch_size": "global_batch_size",
    }
    for name, like in followers.items():
        if ledger.has(name) and ledger.get(name) in (None, ledger.get(like)):
            ledger.tell("default", None, name)
    if ledger.get("manual_gc"):
        ledger.tell("translated", "backend.config.loop.garbage_collect_every says when", "manual_gc")
    elif ledger.known("manual_gc"):
        ledger.tell("dead", "it counts only with manual_gc: true", "manual_gc_interval")
    clip = ledger.number("clip_grad")
    if clip == 0:
        reason = "0 means no clipping there; here a norm that is never reached"
        ledger.say("training.max_grad_norm", 1.0e9, "clip_grad", changed=reason)
    elif clip is not None:
        ledger.say("training.max_grad_norm", clip, "clip_grad")


RULES: Final[tuple[Callable[[Ledger], None], ...]] = (
    length,
    optimizer,
    learning_rate,
    parallel,
    sharding,
    precision,
    recompute,
    files,
    data,
    tokenizer,
    observation,
    followers_and_bounds,
)
