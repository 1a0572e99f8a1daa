"""From a job to what `task=plan` says of its memory and speed; asks `primus_hydra.plan`, and changes nothing."""

from __future__ import annotations

from primus_hydra.config.layout import Layout
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.schema.platform import PlatformConfig
from primus_hydra.plan.communication import OVERLAP
from primus_hydra.plan.legality import rules_of
from primus_hydra.plan.memory import GIB, PARTS, SOURCES, memory_of, peak, what_fits
from primus_hydra.plan.rates import rates_of
from primus_hydra.plan.setting import Setting, setting_of
from primus_hydra.plan.throughput import throughput_of
from primus_hydra.ui.plan_view_projection import MemoryPart, ProjectionPart, RuleLine, SpeedPart, StageLine

_CHANGES_SHOWN = 3


def project(job: JobConfig, layout: Layout, vocab: int) -> ProjectionPart:
    """Return rules, memory and speed of a job with `vocab` embedding rows."""
    setting = setting_of(job, layout, vocab)
    speed = _speed(setting, job.platform)
    return ProjectionPart(
        rules=tuple(
            RuleLine(key=rule.key, what=rule.what, holds=rule.holds, reason=rule.reason, nearest=rule.nearest)
            for rule in rules_of(setting)
        ),
        memory=_memory(setting, job.platform.memory_gib),
        speed=speed,
        seconds_in_all=None if speed is None else speed.step_s * job.training.steps,
    )


def _memory(setting: Setting, capacity: float | None) -> MemoryPart:
    stages = memory_of(setting)
    most = peak(stages).total
    fits = None if capacity is None else most <= capacity * GIB
    changes = what_fits(setting, capacity * GIB) if capacity is not None and not fits else []
    return MemoryPart(
        stages=tuple(
            StageLine(
                stage=stage.rank,
                layers=stage.layers,
                parts={part: getattr(stage, part) / GIB for part in PARTS},
                total=stage.total / GIB,
                in_flight=stage.in_flight,
            )
            for stage in stages
        ),
        peak=most / GIB,
        capacity=capacity,
        fits=fits,
        changes=tuple((change.override, change.peak / GIB) for change in changes[:_CHANGES_SHOWN]),
        sources=SOURCES,
    )


def _speed(setting: Setting, platform: PlatformConfig) -> SpeedPart | None:
    rates = rates_of(platform, setting)
    if rates is None:
        return None
    found = throughput_of(setting, rates)
    return SpeedPart(
        tokens_per_s_per_gpu=found.tokens_per_s_per_gpu,
        tokens_per_s=found.tokens_per_s_per_gpu * setting.world,
        step_s=found.step_s,
        mfu=found.mfu,
        tflops=found.model_tflops,
        tflops_all_pairs=found.tflops_all_pairs,
        bubble=found.bubble,
        where=found.where,
        confidence=found.confidence,
        sources=(
            f"peaks and bandwidths of {platform.name} ({'; '.join(platform.source)})",
            f"achieved parts of them: {found.source}",
            "operations counted weight by weight; collectives as rings, trees or levels (Thakur et al. 2005, 4.1)",
            f"collectives hide behind {OVERLAP:.0%} of the computation beside them (stated)",
        ),
    )
