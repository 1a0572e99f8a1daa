"""`launch.check_paths=false`: paths that exist only on the nodes are taken on trust, their absence is not."""

from __future__ import annotations

import pytest

from primus_hydra.tasks.readiness import examine
from tests.support import make_job

ELSEWHERE = {
    "data.kind": "text",
    "data.path": "/nodes/only/*.txt",
    "tokenizer.kind": "hf",
    "tokenizer.path": "/nodes/tok",
}


def wrong_keys(overrides: dict[str, object]) -> set[str | None]:
    found = examine(make_job(overrides), {}, on_this_host=False)
    return {problem.key for problem in found.users} & {"data.path", "tokenizer.path"}


@pytest.mark.parametrize(("check", "wrong"), [(True, {"data.path", "tokenizer.path"}), (False, set())])
def test_the_switch_decides_whether_paths_are_looked_at_here(check: bool, wrong: set[str]) -> None:
    assert wrong_keys({**ELSEWHERE, "launch.check_paths": check}) == wrong


def test_a_path_that_is_not_given_is_refused_also_without_the_check() -> None:
    assert wrong_keys({**ELSEWHERE, "data.path": None, "launch.check_paths": False}) == {"data.path"}
