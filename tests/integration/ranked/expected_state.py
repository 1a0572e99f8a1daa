"""What the plan counts for a scenario of the ranked tests, to be compared with what its ranks held."""

from __future__ import annotations

from primus_hydra.config.layout import layout_of
from primus_hydra.plan.setting import setting_of
from primus_hydra.plan.state import state_of
from tests.integration.ranked.driver import Scenario
from tests.support import make_job


def counted(scenario: Scenario, pipeline_rank: int = 0) -> dict[str, int]:
    """Return the counted bytes of a pipeline rank's fullest data-parallel rank."""
    job = make_job(scenario.overrides)
    layout, problems = layout_of(job)
    assert layout is not None, problems
    state = state_of(setting_of(job, layout, scenario.data["vocab_size"]), pipeline_rank)
    return {"weights": state.weights, "gradients": state.gradients, "optimizer": state.optimizer}
