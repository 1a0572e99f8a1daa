"""Whether a patch applies, as tables over the selection, the versions and the condition."""

from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.config.schema import PatchesConfig
from primus_hydra.patching import Decision, PatchContext, Registry, Selection, decide
from tests.support import make_job

JOB = make_job()


def context(**changes: Any) -> PatchContext:
    facts: dict[str, Any] = {"backend_version": "0.3.0", "torch_version": "2.14.1", "phase": "setup", **changes}
    return PatchContext(job=JOB, backend="titan", **facts)


def decision(selection: Selection | None = None, at: PatchContext | None = None, **changes: Any) -> Decision:
    registry = Registry()
    arguments: dict[str, Any] = {"backend": "titan", "phase": "setup", "why": "It breaks otherwise.", **changes}
    registry.register("titan.device", **arguments)(lambda context: None)
    (patch,) = registry.patches(arguments["backend"])
    return decide(patch, at or context(), selection or Selection())


def explode(context: PatchContext) -> bool:
    raise KeyError("cpu")


@pytest.mark.parametrize(
    ("changes", "applies", "reason"),
    [
        ({}, True, "every version"),
        ({"backend": "*"}, True, "every version"),
        ({"phase": "*"}, True, "every version"),
        ({"backend": "other"}, False, "it is for other, the backend is titan"),
        ({"phase": "convert"}, False, "it belongs to phase convert, this is setup"),
        ({"versions": ">=0.3,<0.4"}, True, "titan 0.3.0 is in >=0.3,<0.4"),
        ({"versions": "<0.3"}, False, "titan 0.3.0 is not in <0.3"),
        ({"condition": lambda c: c.job.platform.is_cpu, "when": "on a CPU"}, True, "every version; on a CPU"),
        ({"condition": lambda c: False, "when": "on a GPU"}, False, "does not hold: on a GPU"),
        ({"condition": explode, "when": "on a CPU"}, False, "its condition (on a CPU) failed: KeyError: 'cpu'"),
    ],
)
def test_a_decision_says_why(changes: dict[str, Any], applies: bool, reason: str) -> None:
    made = decision(**changes)

    assert (made.applies, made.reason) == (applies, reason)


def test_a_condition_is_not_asked_where_the_versions_do_not_fit() -> None:
    assert decision(versions="<0.3", condition=explode).error is None


@pytest.mark.parametrize(
    ("enabled", "disabled", "variable", "objection"),
    [
        (["*"], [], None, None),
        (["*"], [], "", None),
        (["*"], [], "all", None),
        (["*"], [], " all ", None),
        (["*"], [], "none", "PRIMUS_PATCHES is none"),
        (["*"], [], "titan.device", None),
        (["*"], [], "other, titan.*", None),
        (["*"], [], "other", "PRIMUS_PATCHES does not name it"),
        (["titan.*"], [], None, None),
        (["other"], [], None, "patches.enabled does not name it"),
        ([], [], None, "patches.enabled does not name it"),
        (["*"], ["titan.device"], None, "patches.disabled has titan.device"),
        (["titan.device"], ["*.device"], None, "patches.disabled has *.device"),
        # The environment narrows; it does not bring back what the configuration leaves out.
        (["*"], ["titan.device"], "titan.device", "patches.disabled has titan.device"),
        (["other"], [], "titan.device", "patches.enabled does not name it"),
    ],
)
def test_configuration_and_environment_select_together(
    enabled: list[str], disabled: list[str], variable: str | None, objection: str | None
) -> None:
    environment = {} if variable is None else {"PRIMUS_PATCHES": variable}
    selection = Selection.of(PatchesConfig(enabled=enabled, disabled=disabled), environment)

    assert selection.objection("titan.device") == objection
    assert decision(selection).applies is (objection is None)


@pytest.mark.parametrize(
    ("selection", "key", "hint"),
    [
        (Selection(disabled=("titan.devise",)), "patches.disabled", "did you mean titan.device"),
        (Selection(enabled=("zzz*",)), "patches.enabled", "registered: titan.device, titan.seed"),
        (Selection(only=("titan.sed",)), "PRIMUS_PATCHES", "did you mean titan.seed"),
    ],
)
def test_a_pattern_that_matches_no_patch_is_a_problem(selection: Selection, key: str, hint: str) -> None:
    (problem,) = selection.problems(["titan.device", "titan.seed"])

    assert problem.key == key
    assert problem.hint is not None
    assert problem.hint.startswith(hint)


def test_good_patterns_are_no_problem_even_where_nothing_is_registered() -> None:
    assert Selection().problems([]) == []
    assert Selection(enabled=("titan.*",), disabled=("*.seed",), only=()).problems(["titan.seed"]) == []
