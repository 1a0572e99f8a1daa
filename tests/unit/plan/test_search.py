"""A search looks at every legal layout, keeps what fits, and puts the fastest first."""

from __future__ import annotations

import shlex
import time

from primus_hydra.config.layout import layout_of
from primus_hydra.plan.legality import legal
from primus_hydra.plan.memory import GIB, memory_of, peak
from primus_hydra.plan.rates import rates_of
from primus_hydra.plan.search import layouts, refined, search
from primus_hydra.plan.setting import setting_of
from tests.unit.plan.settings import job_of, setting

WORDS = ("model=llama3_8b", "platform=h100", "launch.nodes=2", "training.global_batch_size=64")


def test_candidates_are_legal_fit_and_are_ranked() -> None:
    job = setting(*WORDS)
    rates = rates_of(job_of(*WORDS).platform, job)
    assert rates is not None
    found = search(job, rates, 79.6)

    assert found.tried == found.illegal + found.too_large + len(found.candidates) == len(list(layouts(job)))
    assert found.too_large > 0 < found.illegal
    speeds = [candidate.tokens_per_s_per_gpu for candidate in found.candidates]
    assert speeds == sorted(speeds, reverse=True)
    for candidate in found.candidates[::25]:
        assert legal(candidate.setting)
        assert candidate.setting.world == 16
        assert peak(memory_of(candidate.setting)).total <= 79.6 * GIB * 1.001
    assert len(refined(found.candidates[:3], rates)) == 3


def test_the_overrides_give_the_candidate_back() -> None:
    job = setting(*WORDS)
    rates = rates_of(job_of(*WORDS).platform, job)
    assert rates is not None
    for candidate in search(job, rates, 79.6).candidates[:40:8]:
        again = job_of(*WORDS, *shlex.split(candidate.overrides))
        layout, problems = layout_of(again)
        assert layout is not None, problems
        assert setting_of(again, layout, job.vocab) == candidate.setting


def test_ten_thousand_layouts_take_seconds() -> None:
    words = ("model=deepseek_v2_lite", "platform=h100", "launch.nodes=4", "training.global_batch_size=512")
    job = setting(*words)
    rates = rates_of(job_of(*words).platform, job)
    assert rates is not None
    began = time.process_time()
    found = search(job, rates, 79.6)

    assert found.tried > 10_000
    assert time.process_time() - began < 20
