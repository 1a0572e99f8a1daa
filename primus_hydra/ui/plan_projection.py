"""The sentences and tables of a projection, the same in a terminal and in Markdown."""

from __future__ import annotations

from primus_hydra.ui.plan_view_projection import MemoryPart, ProjectionPart, RuleLine, SpeedPart
from primus_hydra.ui.words import duration

STAGES_LISTED = 16
"""Stages that are listed one by one."""


def rules_title(rules: tuple[RuleLine, ...]) -> str:
    """Say whether the layout is legal."""
    broken = sum(not rule.holds for rule in rules)
    return f"legal: {len(rules)} rules hold" if not broken else f"not legal: {broken} of {len(rules)} rules are broken"


def rule_rows(rules: tuple[RuleLine, ...]) -> list[tuple[str, ...]]:
    """Return the rules as rows: what was compared, and why it must be."""
    rows: list[tuple[str, ...]] = []
    for rule in rules:
        reason = rule.reason if rule.holds or rule.nearest is None else f"{rule.reason}; {rule.nearest}"
        rows.append(("" if rule.holds else "BROKEN", rule.what, reason))
    return rows if any(row[0] for row in rows) else [row[1:] for row in rows]


def memory_title(memory: MemoryPart) -> str:
    """Say how full the fullest rank is."""
    if memory.capacity is None:
        return f"memory: {memory.peak:.2f} GiB on the fullest rank (GiB by part)"
    verdict = "fits" if memory.fits else "DOES NOT FIT"
    return f"memory: {verdict}, {memory.peak:.1f} of {memory.capacity:g} GiB on the fullest rank (GiB by part)"


def memory_head(memory: MemoryPart) -> tuple[str, ...]:
    """Return the columns of the memory table."""
    return ("stage", "layers", *memory.stages[0].parts, "total")


def memory_rows(memory: MemoryPart) -> list[tuple[str, ...]]:
    """Return a row per stage; equal ones that follow each other are one row."""
    rows: list[tuple[str, ...]] = []
    spans: list[tuple[int, int]] = []
    digits = 1 if memory.peak >= 10 else 3
    for stage in memory.stages:
        numbers = (
            str(stage.layers),
            *(f"{size:.{digits}f}" for size in stage.parts.values()),
            f"{stage.total:.{digits}f}",
        )
        if rows and rows[-1] == numbers:
            spans[-1] = (spans[-1][0], stage.stage)
        else:
            rows.append(numbers)
            spans.append((stage.stage, stage.stage))
    names = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return [(name, *row) for name, row in zip(names, rows, strict=True)]


def memory_notes(memory: MemoryPart) -> list[str]:
    """Say what to change where it does not fit."""
    if memory.fits is not False:
        return []
    if not memory.changes:
        return ["no single change of recomputation, batch or tensor parallelism fits it; try task.search=true"]
    return ["it fits with one of:", *(f"  {override} ({peak:.1f} GiB)" for override, peak in memory.changes)]


def source_rows(projection: ProjectionPart) -> list[tuple[str, str]]:
    """Say where the numbers come from."""
    rows = list(projection.memory.sources.items())
    if projection.speed is not None:
        rows += [("speed", line) for line in projection.speed.sources]
    return rows


def speed_title(speed: SpeedPart) -> str:
    """Say how fast it should be."""
    return f"speed: about {speed.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {speed.step_s:.3g} s per step"


def speed_rows(projection: ProjectionPart) -> list[tuple[str, str]]:
    """Return what the projection says of the speed."""
    speed = projection.speed
    if speed is None:
        return []
    parts = ((part, seconds / speed.step_s) for part, seconds in speed.where.items())
    goes = sorted(parts, key=lambda part: -part[1])
    in_all = (
        [("training", f"about {duration(projection.seconds_in_all)} for all steps")]
        if projection.seconds_in_all
        else []
    )
    return [
        ("all GPUs", f"{speed.tokens_per_s:,.0f} tokens/s"),
        *in_all,
        ("MFU", f"{speed.mfu:.1%} of the peak ({speed.tflops:.0f} TFLOP/s per GPU, causal attention by its pairs; "
                f"{speed.tflops_all_pairs:.0f} as logs count, with all pairs)"),
        ("time goes to", ", ".join(f"{part} {share:.0%}" for part, share in goes if share >= 0.005)),
        *([("pipeline", f"the busiest stage waits {speed.bubble:.0%} of a step")] if speed.bubble else []),
        ("confidence", speed.confidence),
    ]  # fmt: skip
