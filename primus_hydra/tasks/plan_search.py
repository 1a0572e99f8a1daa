"""`task=plan task.search=true`: every legal layout of the job's ranks, what fits, fastest first, words to paste."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from primus_hydra.config.build import build_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.instantiate import load_target
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.tokenizer import tokenizer_vocab_size
from primus_hydra.errors import Problem, UserError
from primus_hydra.plan.rates import rates_of
from primus_hydra.plan.search import Candidate, Found, overrides_of, refined, search
from primus_hydra.plan.setting import setting_of
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.ui.plan_text import columns

_CHECKED = 400
_FIXED = {"parallel.dp_shard": "auto", "parallel.dp_replicate": 1, "parallel.etp": 1}
_PLAIN = {"parallel.vpp": 1, "parallel.pipeline_schedule": "1F1B", "parallel.ep": 1}


@dataclass(frozen=True, kw_only=True)
class SearchReport:
    """What a search found: all that fit, the best that the backend takes as well, and what was left out."""

    found: Found
    best: tuple[Candidate, ...]
    refused: int
    ranks: int


def search_layouts(composed: Composed, *, most: int) -> SearchReport:
    """Search the layouts of a job; raises UserError where the platform states no memory or no rates."""
    job = composed.job
    layout, problems = layout_of(_free(job))
    if layout is None:
        raise UserError(*problems)
    setting = setting_of(_free(job), layout, job.model.vocab_size or tokenizer_vocab_size(job))
    rates, capacity = rates_of(job.platform, setting), job.platform.memory_gib
    if rates is None or capacity is None:
        what = f"{job.platform.name} states no memory or no rates to search by"
        raise UserError(Problem(key="platform", what=what, hint="name a platform with GPUs, such as platform=h100"))
    found = search(setting, rates, capacity)
    accepted: list[Candidate] = []
    refused = 0
    for candidate in found.candidates[:_CHECKED]:
        if len(accepted) == 2 * most:
            break
        if _backend_takes(composed, candidate):
            accepted.append(candidate)
        else:
            refused += 1
    best = tuple(refined(accepted, rates)[:most])
    return SearchReport(found=found, best=best, refused=refused, ranks=setting.world)


def _free(job: JobConfig) -> JobConfig:
    """Return the job with a layout that always exists, for its number of ranks and its batch."""
    parallel = dataclasses.replace(
        job.parallel, tp=1, pp=1, vpp=1, cp=1, ep=1, etp=1, dp_shard="auto", dp_replicate=1, pipeline_schedule="1F1B"
    )
    micro = dataclasses.replace(job.training, micro_batch_size="auto")
    return dataclasses.replace(job, parallel=parallel, training=micro)


def _backend_takes(composed: Composed, candidate: Candidate) -> bool:
    """Whether the backend has nothing against a layout: it knows more rules than sizes have."""
    tree = {**composed.tree}
    for dotted, value in {**_FIXED, **_PLAIN, **overrides_of(candidate.setting)}.items():
        node, leaf = dotted.split(".")
        tree[node] = {**tree[node], leaf: value}
    job, problems = build_job(tree)
    if job is None or problems:
        return False
    layout, problems = layout_of(job)
    adapter = load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]
    return layout is not None and not problems and not adapter.problems()


def search_text(report: SearchReport, command: Sequence[str]) -> str:
    """Return a report as text; `command` are the overrides of the job that was searched."""
    return "".join(f"{line}\n" for line in _lines(report, command))


def _lines(report: SearchReport, command: Sequence[str]) -> Iterator[str]:
    found = report.found
    yield (
        f"{found.tried:,} layouts of {report.ranks} ranks: {found.illegal:,} are not legal, "
        f"{found.too_large:,} do not fit, {len(found.candidates):,} are left"
    )
    if report.refused:
        yield f"{report.refused} faster ones are refused by the backend"
    if not report.best:
        yield "nothing fits: take more nodes, a smaller global batch per node, or shorter sequences"
        return
    yield ""
    rows = [("", "tokens/s/GPU", "MFU", "GiB", "overrides")]
    for place, candidate in enumerate(report.best, 1):
        speed, mfu = f"{candidate.tokens_per_s_per_gpu:,.0f}", f"{candidate.mfu:.1%}"
        rows.append((str(place), speed, mfu, f"{candidate.peak_gib:.1f}", candidate.overrides))
    yield from columns(rows)
    kept = [word for word in command if word.partition("=")[0] not in _decided(report.best[0])]
    yield ""
    yield "the fastest, to paste:"
    yield f"  python -m primus_hydra {' '.join([*kept, report.best[0].overrides])}"


def _decided(candidate: Candidate) -> set[str]:
    named = {*overrides_of(candidate.setting), *_FIXED, *_PLAIN}
    return {*named, "task", "task.search", "task.output", "task.top"}


def search_rows(report: SearchReport) -> list[dict[str, object]]:
    """Return every candidate as plain data, fastest first."""
    return [
        {
            **overrides_of(candidate.setting),
            "tokens_per_s_per_gpu": round(candidate.tokens_per_s_per_gpu, 1),
            "mfu": round(candidate.mfu, 4),
            "peak_gib": round(candidate.peak_gib, 2),
            "step_s": round(candidate.step_s, 4),
            "overrides": candidate.overrides,
        }
        for candidate in report.found.candidates
    ]
