"""Which directory a job's run has, and whether the job may go on in it.

The same command is the same run. A run whose determining values or whose text changed is refused with the difference,
so that a checkpoint is never continued by another training unseen.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_hydra.config.composed import Composed
from primus_hydra.config.identity import default_name, differences, point_name, short_hash
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import Problem, UserError
from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import saved_tree
from primus_hydra.runtime.spec import AttemptSpec

_LONGEST_NAME_BYTES = 160
"""File systems take 255 bytes; a hash, a number and the names of trackers' files come on top."""
_OTHER_SHAPE = "these give the weights another shape, so no checkpoint fits: start a new run with run.fresh=true"
_SHAPE = frozenset(
    {
        f"model.{name}"
        for name in (
            "architecture",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "tie_word_embeddings",
            "attention_bias",
            "n_routed_experts",
            "n_shared_experts",
            "moe_intermediate_size",
            "first_k_dense_replace",
            "q_lora_rank",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "v_head_dim",
        )
    }
    | {"tokenizer.vocab_size"}
)
"""Values that decide the shapes of the weights; a checkpoint fits only the same."""
_MAY_CHANGE = "start a new run with run.fresh=true or another run.name, or go on all the same with resume=must"


def run_paths(composed: Composed) -> RunPaths:
    """Return the paths of the job's run; nothing is created. `run.fresh` takes the first name that is free."""
    job = composed.job
    name = folder_name(job.run.name or composed.sweep or default_name(composed.tree))
    base = Path(job.run.dir).expanduser().absolute()
    root = base / name / point_name(composed.swept) if composed.swept else base / name
    return RunPaths(_first_free(root) if job.run.fresh else root)


def folder_name(name: str) -> str:
    """Return the name of a run's directory: the run's own name where that makes a plain one.

    Letters and digits of any script and `._-+=@` stay; anything else becomes `_`, a leading dot too, and a long name is
    cut. A changed name ends in a hash of the whole one, so that two names never share a directory.
    """
    letters = "".join(letter if _stays(letter) else "_" for letter in unicodedata.normalize("NFC", name))
    plain = f"_{letters[1:]}" if letters.startswith((".", "-")) else letters
    short = plain.encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    return name if short == name else f"{short}-{short_hash(name)}"


def _stays(letter: str) -> bool:
    return letter.isalnum() or letter in "._-+=@" or unicodedata.category(letter).startswith("M")


def refuse_other_training(paths: RunPaths, tree: Mapping[str, Any], resume: str) -> None:
    """Raise UserError if the run was started with other determining values; `resume=must` goes on all the same."""
    before = saved_tree(paths.config)
    if before is None:
        _refuse_unknown_values(paths, resume)
        return
    changed = differences(before, tree)
    if resume == "must":
        changed = {leaf: values for leaf, values in changed.items() if leaf in _SHAPE}
    if changed:
        listed = ", ".join(f"{leaf}: {_short(old)} -> {_short(new)}" for leaf, (old, new) in changed.items())
        what = f"the run {paths.root.name} was started with other values ({listed})"
        hint = _OTHER_SHAPE if resume == "must" else _MAY_CHANGE
        raise UserError(Problem(key="run.name", what=what, where=str(paths.root), hint=hint))


def refuse_too_few_steps(paths: RunPaths, step: int | None, steps: int) -> None:
    """Raise UserError if the checkpoint to go on from is past the last step that is asked for."""
    if step is not None and step > steps:
        what = f"the run {paths.root.name} has a checkpoint at step {step}, past the {steps} steps that are asked for"
        hint = f"use training.steps={step} or more, or start a new run with run.fresh=true"
        raise UserError(Problem(key="training.steps", what=what, where=str(paths.checkpoints), hint=hint))


def _refuse_unknown_values(paths: RunPaths, resume: str) -> None:
    """A run whose configuration is lost goes on only if somebody vouches for it: its values cannot be compared."""
    if resume in ("must", "never") or not checkpoint_steps(paths):
        return
    what = f"the run {paths.root.name} has checkpoints, but its config.yaml cannot be read: its values are not known"
    raise UserError(Problem(key="run.name", what=what, where=str(paths.config), hint=_MAY_CHANGE))


def refuse_other_text(paths: RunPaths, attempt: int, data: PreparedData, resume: str) -> None:
    """Raise UserError if the text of the data changed since the attempt before; `resume=must` goes on all the same."""
    before = _data_of(paths, attempt - 1)
    if before is None or resume in ("must", "never") or before.corpus_hash == data.corpus_hash:
        return
    what = f"the text behind the run changed: it was {before.corpus_hash}, it is {data.corpus_hash}"
    raise UserError(Problem(key="data", what=what, where=str(paths.root), hint=_MAY_CHANGE))


def next_attempt(paths: RunPaths) -> int:
    """Return the number of the coming attempt, from 1."""
    return max(paths.attempt_numbers(), default=0) + 1


def _first_free(root: Path) -> Path:
    names = itertools.chain([root], (root.with_name(f"{root.name}-{number}") for number in itertools.count(2)))
    return next(path for path in names if not path.exists())


def _data_of(paths: RunPaths, attempt: int) -> PreparedData | None:
    try:
        return AttemptSpec.read(paths.attempt(attempt).spec).data
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
