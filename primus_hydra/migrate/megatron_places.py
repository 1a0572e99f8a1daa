"""Megatron's files, data, tokenizer and logs in neutral keys.

A run has one folder here, which holds its checkpoints and logs, and goes on from its own newest checkpoint by itself.
"""

from __future__ import annotations

from typing import Any, Final

from primus_hydra.migrate.ledger import Ledger

_OWN_FOLDER: Final = "the run's own folder holds it: run.dir and run.name"
_TRAINING_PATHS: Final = ("train_data_path", "data_path")
_OTHER_PATHS: Final = ("valid_data_path", "test_data_path")
_MASKS: Final = ("reset_position_ids", "reset_attention_mask")
_NO_TEXT: Final = ("NullTokenizer", "NullMultimodalTokenizer")
_OTHER_FORMATS: Final = ("GPT2BPETokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "TikTokenizer")
"""Types that read files of another kind; all others of Primus and Megatron that name a model read its folder."""


def files(ledger: Ledger) -> None:
    """Checkpoints: whether they are written, what the run starts from, and how."""
    ledger.say("checkpoint.enable", bool(ledger.get("save")), "save", changed=_folder(ledger.get("save")))
    _start(ledger)
    if ledger.has("async_save"):
        ledger.say("checkpoint.async_mode", "async" if ledger.get("async_save") else "disabled", "async_save")
    form = ledger.get("ckpt_format")
    if form in ("torch_dist", None):
        ledger.tell("default", None, "ckpt_format")
    for name in ("tensorboard_dir", "wandb_save_dir"):
        if name != "tensorboard_dir" and ledger.get(name) is not None:
            ledger.tell("dead", _OWN_FOLDER, name)


def _folder(path: Any) -> str | None:
    return None if not path else f"checkpoints lie in the folder of the run, not in {path}"


def _start(ledger: Ledger) -> None:
    load, weights = ledger.get("load"), ledger.get("pretrained_checkpoint")
    from_here = weights or (load if ledger.get("finetune") else None)
    if from_here:
        names = ("load", "finetune", "pretrained_checkpoint")
        told = "it takes a checkpoint that this backend wrote here, or hf:FOLDER with Hugging Face weights"
        ledger.say("init_from", str(from_here), *(name for name in names if ledger.get(name)), changed=told)
    elif load is not None and load == ledger.get("save"):
        ledger.tell("translated", "a run goes on from its own newest checkpoint here: resume=auto", "load")
    elif load is not None:
        reason = "a run goes on only from its own checkpoints here; to start from these weights set init_from"
        ledger.tell("unsupported", reason, "load")
    idle = [name for name in ("load", "finetune", "pretrained_checkpoint", "ckpt_step") if not ledger.get(name)]
    ledger.tell("default", None, *(name for name in idle if name in ledger.open()))


def data(ledger: Ledger) -> None:
    """Random tokens, or indexed data sets with their weights, order, masks and held-out part."""
    if ledger.get("mock_data"):
        ledger.choose("data", "mock", "mock_data")
        ledger.tell("dead", "nothing is read with mock_data", *(n for n in _TRAINING_PATHS if ledger.get(n)))
    else:
        ledger.tell("default", None, "mock_data")
        _paths(ledger)
    ledger.tell("default", None, *(n for n in (*_TRAINING_PATHS, *_OTHER_PATHS) if ledger.get(n) is None))
    others = [name for name in _OTHER_PATHS if ledger.get(name)]
    ledger.tell("unsupported", "documents are held out of data.path here: data.validation_fraction", *others)
    _masks(ledger)
    _split(ledger)
    if ledger.get("dataloader_type") in ("single", None):
        ledger.tell("default", None, "dataloader_type")
    if ledger.choices.get("data") != "megatron" and ledger.has("data_cache_path"):
        ledger.tell("dead", "the cache is of indexed data sets, and none is read", "data_cache_path")


def _paths(ledger: Ledger) -> None:
    for name in _TRAINING_PATHS:
        value = ledger.get(name)
        if value:
            items = [
                str(item) for part in (value if isinstance(value, list) else [value]) for item in str(part).split()
            ]
            ledger.choose("data", "megatron", name)
            ledger.say("data.path", items[0] if len(items) == 1 else items, name)
            return


def _masks(ledger: Ledger) -> None:
    masks = [bool(ledger.get(name)) for name in _MASKS]
    told = None if all(masks) or not any(masks) else "positions and attention begin anew together here, or neither does"
    ledger.say("data.document_mask", any(masks), *_MASKS, changed=told)
    name = "eod_mask_loss"
    if bool(ledger.get(name)) == any(masks):
        ledger.tell("translated", "it goes with data.document_mask", name)
    else:
        ledger.tell("changed", "the loss leaves out ends of documents exactly where data.document_mask is true", name)


def _split(ledger: Ledger) -> None:
    text = ledger.get("split")
    if text is None:
        return ledger.tell("default", None, "split")
    try:
        parts = [float(part) for part in str(text).split(",")]
        held = sum(parts[1:2]) / sum(parts)
    except (ValueError, ZeroDivisionError):
        return ledger.tell("unsupported", "it is no list of numbers: set data.validation_fraction", "split")
    tested = len(parts) > 2 and parts[2]
    told = "the part for tests is trained on: there is no such split here" if tested else None
    return ledger.say("data.validation_fraction", float(f"{held:.12g}"), "split", changed=told)


def tokenizer(ledger: Ledger) -> None:
    """A tokenizer is a folder of Hugging Face files here."""
    kind, model = ledger.get("tokenizer_type"), ledger.get("tokenizer_model")
    names = ("tokenizer_type", "tokenizer_model")
    if kind in _NO_TEXT:
        ledger.tell("translated", "no text is read, so no tokenizer is needed", *names)
    elif model and kind not in _OTHER_FORMATS:
        ledger.choose("tokenizer", "hf", *names)
        on_hub = not str(model).startswith(("/", ".", "~")) and str(model).count("/") == 1
        told = "a name on the Hub: give the folder that it was downloaded to" if on_hub else None
        ledger.say("tokenizer.path", str(model), "tokenizer_model", changed=told)
    elif kind is not None or model is not None:
        reason = f"{kind} is not read here: give a folder of Hugging Face files, tokenizer=hf tokenizer.path=FOLDER"
        ledger.tell("unsupported", reason, *(name for name in names if ledger.get(name) is not None))
    ledger.tell("default", None, *(name for name in names if name in ledger.open()))


def observation(ledger: Ledger) -> None:
    """Validation, trackers and traces."""
    _validation(ledger)
    if ledger.get("tensorboard_dir"):
        _tracker(ledger, "tensorboard", "tensorboard_dir", "event files lie in the run's folder")
    if ledger.get("wandb_project"):
        _tracker(ledger, "wandb", "wandb_project", None)
        ledger.say("tracker.wandb.project", str(ledger.get("wandb_project")), "wandb_project")
    ledger.tell("default", None, *(n for n in ("tensorboard_dir", "wandb_project") if ledger.get(n) is None))
    if ledger.has("wandb_exp_name"):
        ledger.tell("dead", "a run has one name here, run.name, which trackers get", "wandb_exp_name")
    _profile(ledger)


def _tracker(ledger: Ledger, tracker: str, name: str, told: str | None) -> None:
    """Switch a tracker on, unless a key of Primus's own says whether it is on."""
    if f"tracker.{tracker}.enable" not in ledger.settings:
        ledger.say(f"tracker.{tracker}.enable", True, name, changed=told)
    else:
        ledger.tell("translated", f"disable_{tracker} says whether it is on", name)


def _validation(ledger: Ledger) -> None:
    steps = ledger.number("eval_iters")
    if not ledger.has("eval_iters") or steps is None:
        return
    held_out = any(ledger.get(name) for name in ("mock_data", "valid_data_path", "split", "data_path"))
    if steps == 0:
        ledger.say("validation.enable", False, "eval_iters")
    elif held_out or not ledger.get("train_data_path"):
        ledger.say("validation.enable", True, "eval_iters")
        ledger.say("validation.steps", int(steps), "eval_iters")
    else:
        ledger.tell("dead", "with train_data_path alone there is nothing to measure on, as there", "eval_iters")


def _profile(ledger: Ledger) -> None:
    names = ("profile", "use_pytorch_profiler", "profile_step_start", "profile_step_end")
    if not ledger.get("profile"):
        ledger.tell("default", None, *(name for name in names[:2] if not ledger.get(name)))
        ledger.tell("dead", "it counts only with profile: true", *(name for name in names if ledger.get(name)))
        return
    start, end = ledger.number("profile_step_start") or 0, ledger.number("profile_step_end") or 0
    told = "traces repeat every profiler.every steps here, not once"
    ledger.say("profiler.enable", True, "profile", "use_pytorch_profiler")
    ledger.say("profiler.active", int(max(1, end - start)), "profile_step_start", "profile_step_end", changed=told)
    ledger.say("profiler.every", int(max(10, end)), "profile_step_start", "profile_step_end", changed=told)
