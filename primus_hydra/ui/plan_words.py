"""The sentences of a plan, the same in a terminal and in Markdown."""

from __future__ import annotations

from primus_hydra.ui.plan_view import LayoutPart, ModelPart, PatchLine, PlanView, RankLine, RunPart, ValueLine
from primus_hydra.ui.words import amount

RANKS_LISTED = 16
"""Ranks that are listed one by one; of more, as many are shown and the others counted."""

_HOW = {
    "rank": "the rank itself: one rank that is never restarted needs no agent",
    "agent": "torch's agent, which starts the ranks",
    "joined": "this process becomes the rank: an outer launcher started it",
}
_SHOWN = {"changed": "that differ from the schema's defaults", "all": "all of them"}


def run_words(run: RunPart) -> str:
    """Say where the run stands and what a start would do."""
    words = {
        "new": f"new: starts from nothing, {run.steps} steps",
        "resume": f"goes on from the checkpoint at step {run.step} of {run.steps}",
        "restart": f"starts from nothing again (no checkpoint to go on from), {run.steps} steps",
        "finished": f"finished at step {run.step}: a start would do nothing",
        "refused": "refused: see the error below",
    }
    return f"{words[run.standing]} (attempt {run.attempt})"


def model_words(model: ModelPart) -> str:
    """Say how large the model is."""
    if model.parameters is None:
        return f"{model.name}: parameters are not known without a vocabulary"
    active = "" if model.active_parameters == model.parameters else f", {model.active_parameters:,} active per token"
    return f"{model.name}: {model.parameters:,} parameters ({amount(model.parameters)}){active}, " + (
        f"vocabulary of {model.vocab_size:,}"
    )


def backend_words(view: PlanView) -> str:
    """Say who trains, and on what."""
    backend = view.backend
    commit = f" at {backend.commit[:12]}" if backend.commit else ""
    return f"{backend.name} {backend.version or '(version unknown: not installed here)'}{commit} on {backend.platform}"


def layout_words(layout: LayoutPart) -> str:
    """Say how many ranks there are, and how they share the work."""
    ranks = "1 rank" if layout.world_size == 1 else f"{layout.world_size} ranks"
    sizes = {
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "dp_shard": layout.dp_shard,
        "dp_replicate": layout.dp_replicate,
    }
    used = ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "nothing is split"
    return f"{ranks} = {layout.nodes} node(s) x {layout.ranks_per_node}: {used}"


def batch_words(layout: LayoutPart) -> str:
    """Say how the global batch is cut."""
    dp = layout.dp_shard * layout.dp_replicate
    return (
        f"{layout.global_batch_size} samples per step = {layout.micro_batch_size} per microbatch x "
        f"{layout.microbatches} microbatch(es) x {dp} data-parallel rank(s)"
    )


def token_words(layout: LayoutPart) -> str:
    """Say how many tokens a step and the training see."""
    return (
        f"{layout.global_batch_size} x {layout.seq_length} = {layout.tokens_per_step:,} per step, "
        f"{layout.tokens:,} in all"
    )


def facts(view: PlanView) -> list[tuple[str, str]]:
    """Return the head of a plan as pairs of a name and its words."""
    point = [("point", ", ".join(view.point))] if view.point else []
    return [
        *point,
        ("run", f"{view.run.name}, {run_words(view.run)}"),
        ("directory", view.run.directory),
        ("model", model_words(view.model)),
        ("backend", backend_words(view)),
        ("layout", layout_words(view.layout)),
        ("batch", batch_words(view.layout)),
        ("tokens", token_words(view.layout)),
        ("CPUs", view.launch.binding),
    ]


def values_title(view: PlanView) -> str:
    """Name the list of values."""
    return f"values {_SHOWN.get(view.shown, f'of {view.shown}')}"


def how_words(view: PlanView) -> str:
    """Say what kind of process the launcher starts."""
    return _HOW[view.launch.how]


def listed_ranks(ranks: tuple[RankLine, ...]) -> tuple[tuple[RankLine, ...], str | None]:
    """Return the ranks to list, and what to say of the others."""
    if len(ranks) <= RANKS_LISTED:
        return ranks, None
    more = len(ranks) - RANKS_LISTED
    return ranks[:RANKS_LISTED], f"and {more} more in the same manner; task.format=json lists every one"


def own_words(rank: RankLine, variables: str) -> str:
    """Return the rank's own variables, written by the caller, and its CPUs."""
    cpus = [f"CPUs {rank.cpus}"] if rank.cpus else []
    return ", ".join([*([variables] if variables else []), *cpus])


def listed_patches(view: PlanView) -> tuple[list[PatchLine], str | None]:
    """Return the patches that will or may apply, and what to say of the others."""
    chosen = [patch for patch in view.patches if patch.status != "skipped"]
    skipped = len(view.patches) - len(chosen)
    return chosen, f"{skipped} more are skipped; task=patches tells why" if skipped else None


def source_words(line: ValueLine) -> str:
    """Return where a value came from, in one line."""
    return " ".join(line.source.split())
