"""What torchtitan's keys mean in neutral keys, where it is more than another name.

`SAME` are the keys whose value is the neutral key's; which key that is, the backend's own table says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from primus_hydra.migrate.ledger import Ledger

SAME: Final = frozenset(
    {
        *("optimizer.lr", "optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.weight_decay"),
        *("lr_scheduler.warmup_steps", "lr_scheduler.decay_type", "lr_scheduler.min_lr_factor"),
        *("training.seq_len", "training.steps", "training.max_norm", "training.dtype"),
        *("training.mixed_precision_param", "training.mixed_precision_reduce"),
        *("parallelism.data_parallel_replicate_degree", "parallelism.fsdp_reshard_after_forward"),
        *("parallelism.tensor_parallel_degree", "parallelism.enable_sequence_parallel"),
        *("parallelism.pipeline_parallel_degree", "parallelism.pipeline_parallel_schedule"),
        *("parallelism.context_parallel_degree", "parallelism.expert_parallel_degree"),
        *("checkpoint.enable", "checkpoint.interval", "checkpoint.keep_latest_k", "checkpoint.export_dtype"),
        *("activation_checkpoint.memory_budget", "compile.enable", "compile.components", "compile.backend"),
        *("metrics.log_freq", "metrics.enable_tensorboard", "metrics.enable_wandb"),
        *("profiler.enable_profiling", "profiler.profile_freq", "profiler.profiler_active"),
        *("profiler.profiler_warmup", "profiler.enable_memory_snapshot"),
        *("debug.deterministic", "quantize.linear.float8.emulate"),
        *("validator.freq", "validator.enable"),
    }
)
_FLOAT8: Final = ("quantize.linear.float8", "float8")
_SEVERAL_CHUNKS: Final = ("interleaved1f1b", "loopedbfs", "interleavedzerobubble", "zbvzerobubble", "dualpipev")
"""Pipeline schedules that have two stages on each rank unless something else is said."""
_RECIPES: Final = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


def batches(ledger: Ledger) -> None:
    """Under a pipeline torchtitan's local batch is all microbatches of a rank; its global -1 is one forward of each."""
    local, whole = ledger.get("training.local_batch_size"), ledger.get("training.global_batch_size")
    piped = (ledger.number("parallelism.pipeline_parallel_degree") or 1) > 1
    size = "parallelism.pipeline_parallel_microbatch_size"
    if piped and ledger.known(size):
        ledger.say("training.micro_batch_size", ledger.get(size) or 1, size, "training.local_batch_size")
    else:
        ledger.say("training.micro_batch_size", local, "training.local_batch_size")
        ledger.tell("dead", "it counts only with a pipeline", size)
    if isinstance(whole, int) and whole > 0:
        ledger.say("training.global_batch_size", whole, "training.global_batch_size")
        return
    ranks = _data_ranks(ledger)
    if ranks and local:
        ledger.say(
            "training.global_batch_size", local * ranks, "training.global_batch_size", "training.local_batch_size"
        )
        return
    what = "it is one local batch for each data-parallel rank there, and their number is the machine's: set it"
    ledger.tell("unsupported", what, "training.global_batch_size")
    if not ledger.has("training.global_batch_size"):
        ledger.notes.append(f"training.global_batch_size is not given: {what}")


def _data_ranks(ledger: Ledger) -> int | None:
    shard, copies = (ledger.get(f"parallelism.data_parallel_{kind}_degree") for kind in ("shard", "replicate"))
    return shard * (copies or 1) if isinstance(shard, int) and shard > 0 else None


def parallel(ledger: Ledger) -> None:
    """-1 is what the machine leaves."""
    name = "parallelism.data_parallel_shard_degree"
    shard = ledger.get(name)
    ledger.say("parallel.dp_shard", "auto" if shard in (-1, None) else shard, name)
    copies = ledger.get("parallelism.data_parallel_replicate_degree")
    if ledger.has(name) and shard == 1 and isinstance(copies, int) and copies > 1:
        ledger.say("parallel.sharding", "none", name)
    per_stage, schedule = "parallelism.pipeline_parallel_layers_per_stage", "parallelism.pipeline_parallel_schedule"
    if str(ledger.get(schedule)).lower() in _SEVERAL_CHUNKS and not ledger.get(per_stage):
        ledger.say("parallel.vpp", 2, schedule)
        ledger.say("parallel.pipeline_schedule", str(ledger.get(schedule)), schedule)
    if ledger.get(per_stage):
        ledger.tell("unsupported", "parallel.vpp has the chunks per rank instead: layers / pp / this number", per_stage)
    else:
        ledger.tell("default", None, per_stage)


def optimizer(ledger: Ledger) -> None:
    """AdamW, or Adam without decay."""
    word = str(ledger.get("optimizer.name") or "AdamW").lower()
    ledger.say("optimizer.name", word, "optimizer.name")


def learning_rate(ledger: Ledger) -> None:
    """The decay is a part of all steps there, and a number of steps here."""
    ratio, steps = ledger.number("lr_scheduler.decay_ratio"), ledger.number("training.steps")
    name = "lr_scheduler.decay_ratio"
    if ratio is not None and steps:
        ledger.say("lr_schedule.decay_steps", round(ratio * steps), name)
    else:
        ledger.tell("default", None, name)
    total = "lr_scheduler.total_steps"
    if ledger.get(total) in (None, ledger.get("training.steps")):
        ledger.tell("default", None, total)
    else:
        ledger.tell("changed", "the schedule ends with the last step here", total)


def recompute(ledger: Ledger) -> None:
    """The mode; none of torchtitan's kinds of selective recomputation but the one by operators is left."""
    ledger.say("recompute.mode", ledger.get("activation_checkpoint.mode") or "none", "activation_checkpoint.mode")
    name = "activation_checkpoint.selective_ac_option"
    if ledger.get(name) == "op":
        ledger.tell("translated", "recompute.mode=selective is by operators", name)


def precision(ledger: Ledger) -> None:
    """A converter of the model is a key here."""
    names = ("model.converters", *(f"{section}.recipe_name" for section in _FLOAT8))
    converters = [str(item) for item in ledger.get("model.converters") or []]
    told = [item for item in converters if "float8" not in item.lower()]
    if any("float8" in item.lower() for item in converters):
        recipe = next((ledger.get(name) for name in names[1:] if ledger.get(name)), None) or _named(converters)
        lost = f"{', '.join(told)} has no word here" if told else None
        ledger.say("precision.fp8", recipe or "tensorwise", *names, changed=lost)
    elif told:
        ledger.tell("unsupported", f"{', '.join(told)} has no word here", "model.converters")
    else:
        ledger.tell("default", None, "model.converters")
        ledger.tell("dead", "it counts only with a float8 converter", *names[1:])


def excluded(ledger: Ledger) -> None:
    """The output projection has Hugging Face's name here."""
    name = "quantize.linear.float8.filter_fqns"
    if ledger.has(name):
        parts = [str(item) for item in ledger.get(name) or []]
        ledger.say("precision.fp8_exclude", ["lm_head" if part == "output" else part for part in parts], name)


def _named(converters: list[str]) -> str | None:
    return next((word for word in reversed(_RECIPES) if any(f"'{word}'" in item for item in converters)), None)


def data(ledger: Ledger) -> None:
    """Its data sets are named in its code; a folder of records is read as text here."""
    if ledger.get("training.mock_data"):
        ledger.choose("data", "mock", "training.mock_data")
    elif ledger.has("training.mock_data"):
        ledger.tell("default", None, "training.mock_data")
    for section in ("training", "dataloader"):
        _dataset(ledger, f"{section}.dataset", f"{section}.dataset_path")


def _dataset(ledger: Ledger, name: str, path: str) -> None:
    folder = ledger.get(path)
    if ledger.choices.get("data") == "mock":
        ledger.tell("dead", "nothing is read with mock_data", name, path)
    elif ledger.has(path) and folder:
        ledger.choose("data", "hf", path)
        ledger.say("data.path", str(folder), path)
        ledger.tell("translated", "the records of the folder are read, whatever the name", name)
    elif ledger.has(name):
        what = "a data set on the Hub, by its name in torchtitan's code: give its folder, data=hf data.path=FOLDER"
        ledger.tell("unsupported", what, name)
        ledger.tell("default", None, path)


def places(ledger: Ledger) -> None:
    """A run has one folder here; the tokenizer is a folder of Hugging Face files in both."""
    folder = next((name for name in ("job.dump_folder", "dump_folder") if ledger.has(name)), None)
    if folder:
        ledger.say("run.dir", str(ledger.get(folder)), folder, changed="each run has a folder of its own below it here")
    own = "the run's own folder holds it"
    ledger.tell("translated", own, "checkpoint.folder", "metrics.save_tb_folder", "profiling.save_traces_folder")
    ledger.tell("translated", own, "profiling.save_memory_snapshot_folder")
    assets = next(
        (n for n in ("model.hf_assets_path", "model.tokenizer_path", "hf_assets_path") if ledger.has(n)), None
    )
    if assets:
        ledger.choose("tokenizer", "hf", assets)
        ledger.say("tokenizer.path", str(ledger.get(assets)), assets)
    ledger.tell("dead", "a comment; the run's name says what it is", "job.description")
    if not ledger.get("metrics.save_for_all_ranks"):
        ledger.tell("default", None, "metrics.save_for_all_ranks")


def checkpoint(ledger: Ledger) -> None:
    """What is loaded first, how a save goes on, and what the last one is."""
    modes = {"disabled": "disabled", "async": "async", "async_with_pinned_mem": "async_pinned"}
    mode = "checkpoint.async_mode"
    if ledger.has(mode):
        ledger.say("checkpoint.async_mode", modes.get(str(ledger.get(mode)), ledger.get(mode)), mode)
    path, in_hf = "checkpoint.initial_load_path", "checkpoint.initial_load_in_hf"
    if ledger.get(path):
        start = f"hf:{ledger.get(path)}" if ledger.get(in_hf) else str(ledger.get(path))
        ledger.say("init_from", start, path, *([in_hf] if ledger.get(in_hf) else []))
    if ledger.has("checkpoint.last_save_in_hf"):
        ledger.say("checkpoint.export_hf", bool(ledger.get("checkpoint.last_save_in_hf")), "checkpoint.last_save_in_hf")
    if ledger.has("checkpoint.last_save_model_only"):
        told = (
            "the last checkpoint is whole here, so that a run can go on from it"
            if ledger.get("checkpoint.last_save_model_only")
            else None
        )
        ledger.tell("changed" if told else "default", told, "checkpoint.last_save_model_only")
    step = "checkpoint.load_step"
    if ledger.get(step) not in (-1, None):
        ledger.tell("unsupported", "a run goes on from its newest checkpoint here: resume=auto", step)
    idle = [n for n in (path, in_hf, step, "checkpoint.initial_load_model_only") if ledger.has(n)]
    ledger.tell("default", None, *(name for name in idle if name in ledger.open()))


def validation(ledger: Ledger) -> None:
    """-1 batches is the whole validation set."""
    for name in ("validation.steps", "validator.steps"):
        if ledger.has(name) and ledger.get(name) == -1:
            told = "all validation documents are measured there, validation.steps batches here"
            ledger.tell("changed", told, name)
        elif ledger.has(name):
            ledger.say("validation.steps", ledger.get(name), name)


def seed(ledger: Ledger) -> None:
    """Without a seed torchtitan draws one; a run here can always be repeated."""
    for name in ("debug.seed", "training.seed"):
        if ledger.has(name) and ledger.get(name) is not None:
            ledger.say("training.seed", ledger.get(name), name)
        else:
            ledger.tell("default", None, name)


RULES: Final[tuple[Callable[[Ledger], None], ...]] = (
    batches,
    parallel,
    optimizer,
    learning_rate,
    recompute,
    precision,
    excluded,
    data,
    places,
    checkpoint,
    validation,
    seed,
)


def preset_names(ledger: Ledger, preset: str | None) -> list[str]:
    """Return the names by which a model of ours is looked for, the surest first.

    torchtitan calls Llama 3 and 3.1 by one word; the folder of the tokenizer says which it is.
    """
    assets = (ledger.get(name) for name in ("model.hf_assets_path", "model.tokenizer_path", "hf_assets_path"))
    folders = [str(path).rstrip("/").rpartition("/")[2] for path in assets if path and "tests/assets" not in str(path)]
    family, size = ledger.get("model.name"), ledger.get("model.flavor")
    return [*folders, *([preset] if preset else []), *([f"{family or ''}_{size}"] if size else [])]
