"""Megatron's length of training, update rule and learning rate in neutral keys.

Megatron counts the decay from step 0, its warm-up included, and keeps the lowest rate afterwards; ours ends with the
last step. Source: its `optimizer_param_scheduler.py`.
"""

from __future__ import annotations

from typing import Final

from primus_hydra.migrate.ledger import Ledger

_SHAPES: Final = {"cosine": "cosine", "linear": "linear", "constant": "constant"}
_WSD_SHAPES: Final = {"cosine": "cosine", "linear": "linear"}
_SAMPLES: Final = ("lr_decay_samples", "lr_warmup_samples", "lr_wsd_decay_samples")


def length(ledger: Ledger) -> None:
    """Steps, or samples by the size of a batch."""
    steps = _steps(ledger)
    if steps is not None:
        ledger.say("training.steps", steps, "train_iters", "train_samples")
    elif ledger.has("train_samples"):
        reason = "samples become steps by global_batch_size, which is not given: set training.steps"
        ledger.tell("unsupported", reason, "train_samples")
    if ledger.get("train_iters") is None:
        ledger.tell("default", None, "train_iters")


def optimizer(ledger: Ledger) -> None:
    """Adam with decoupled decay, which is Megatron's default, is AdamW."""
    name, decoupled = ledger.get("optimizer"), ledger.get("decoupled_weight_decay")
    if name in ("adam", "adamw"):
        word = "adam" if decoupled is False and name == "adam" else "adamw"
        ledger.say("optimizer.name", word, "optimizer", "decoupled_weight_decay")
    elif name is not None:
        ledger.tell("unsupported", f"there is no optimizer {name} here; AdamW is used", "optimizer")


def learning_rate(ledger: Ledger) -> None:
    """The peak, the lowest rate as a part of it, the warm-up and the shape of the decay."""
    peak, lowest = ledger.number("lr"), ledger.number("min_lr")
    if peak:
        ledger.say("optimizer.lr", peak, "lr")
        if lowest is not None:
            ledger.say("lr_schedule.min_lr_ratio", _ratio(lowest, peak), "min_lr")
    elif ledger.has("min_lr"):
        ledger.tell(
            "unsupported", "it becomes a part of lr, which is not given: set lr_schedule.min_lr_ratio", "min_lr"
        )
    _warmup(ledger)
    _decay(ledger)


def _ratio(lowest: float, peak: float) -> float:
    return float(f"{lowest / peak:.12g}")


def _steps(ledger: Ledger) -> int | None:
    steps, samples, batch = (ledger.number(name) for name in ("train_iters", "train_samples", "global_batch_size"))
    if steps is not None:
        return int(steps)
    return int(samples // batch) if samples and batch else None


def _warmup(ledger: Ledger) -> None:
    names = ("lr_warmup_iters", "lr_warmup_fraction", "lr_warmup_samples")
    iters, part, samples = (ledger.number(name) for name in names)
    batch, span = ledger.number("global_batch_size"), ledger.number("lr_decay_iters") or _steps(ledger)
    if part and span:
        ledger.say("lr_schedule.warmup_steps", round(part * span), "lr_warmup_fraction")
    elif samples and batch:
        ledger.say("lr_schedule.warmup_steps", round(samples / batch), "lr_warmup_samples")
    elif iters is not None:
        ledger.say("lr_schedule.warmup_steps", int(iters), "lr_warmup_iters")
    ledger.tell("default", None, *(name for name in names if name in ledger.open() and not ledger.number(name)))


def _decay(ledger: Ledger) -> None:
    style, steps = ledger.get("lr_decay_style"), _steps(ledger)
    span = ledger.number("lr_decay_iters") or _span_of_samples(ledger) or steps
    if style == "WSD":
        _stable_decay(ledger)
    elif style in _SHAPES:
        ledger.say("lr_schedule.decay", _SHAPES[str(style)], "lr_decay_style")
    elif style is not None:
        ledger.tell("unsupported", f"there is no decay {style} here: cosine is used", "lr_decay_style")
    spans = ("lr_decay_iters", "lr_decay_samples")
    told = _other_span(span, steps)
    if style != "WSD" and (ledger.has("lr_decay_style") or ledger.has(*spans)):
        ledger.say("lr_schedule.decay_steps", None, "lr_decay_style")
    given = [name for name in spans if ledger.has(name)]
    idle = [name for name in given if ledger.get(name) is None]
    ledger.tell("default", None, *idle)
    said = [name for name in given if name not in idle]
    ledger.tell("changed" if told else "translated", told or "the decay ends with the last step here too", *said)
    wsd = ("lr_wsd_decay_iters", "lr_wsd_decay_style", "lr_wsd_decay_samples")
    ledger.tell("default", None, *(name for name in wsd if style != "WSD" and name in ledger.open()))


def _span_of_samples(ledger: Ledger) -> float | None:
    samples, batch = ledger.number("lr_decay_samples"), ledger.number("global_batch_size")
    return samples / batch if samples and batch else None


def _other_span(span: float | None, steps: int | None) -> str | None:
    if span is None or steps is None or span == steps:
        return None
    if span < steps:
        return f"the decay ends at step {span:g} there and stays at the lowest rate; here it ends at step {steps}"
    return f"the decay would end at step {span:g}, after the last one; here it reaches the lowest rate at step {steps}"


def _stable_decay(ledger: Ledger) -> None:
    """Warm-up, plateau, decay: the shape and the length of the decay are its own arguments."""
    shape = str(ledger.get("lr_wsd_decay_style") or "exponential")
    told = None if shape in _WSD_SHAPES else f"there is no {shape} decay here: a cosine takes its place"
    names = ("lr_decay_style", "lr_wsd_decay_style")
    ledger.say("lr_schedule.decay", _WSD_SHAPES.get(shape, "cosine"), *names, changed=told)
    iters = ledger.number("lr_wsd_decay_iters")
    if iters is not None:
        ledger.say("lr_schedule.decay_steps", int(iters), "lr_wsd_decay_iters")
