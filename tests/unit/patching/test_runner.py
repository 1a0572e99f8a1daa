"""Applying the patches of a phase: order, records, failures."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from primus_hydra.errors import HostError, UserError
from primus_hydra.patching import PatchContext, PatchError, PatchRecord, Registry, run_patches
from tests.support import make_job


class Bench:
    """A registry whose patches note that they ran."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.ran: list[tuple[str, str]] = []

    def patch(self, id: str, error: Exception | None = None, **changes: Any) -> None:
        arguments: dict[str, Any] = {"backend": "titan", "phase": "setup", "why": "Ranks would hang.", **changes}

        @self.registry.register(id, **arguments)
        def patch(context: PatchContext) -> None:
            self.ran.append((id, context.phase))
            if error is not None:
                raise error

    def run(self, phase: Any = "setup", overrides: dict[str, Any] | None = None) -> list[PatchRecord]:
        context = PatchContext(job=make_job(overrides), backend="titan", backend_version="0.3.0")
        return run_patches(phase, context, registry=self.registry)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.delenv("PRIMUS_PATCHES", raising=False)
    return Bench()


def test_patches_of_the_phase_run_in_order_and_the_others_do_not(bench: Bench) -> None:
    bench.patch("second", priority=60)
    bench.patch("first", priority=40)
    bench.patch("elsewhere", phase="convert")
    bench.patch("foreign", backend="other")

    records = bench.run()

    assert bench.ran == [("first", "setup"), ("second", "setup")]
    assert [(record.id, record.status) for record in records] == [("first", "applied"), ("second", "applied")]


def test_a_patch_of_every_phase_is_told_the_phase(bench: Bench) -> None:
    bench.patch("everywhere", phase="*", backend="*")

    bench.run("before_import")
    bench.run("after_train")

    assert bench.ran == [("everywhere", "before_import"), ("everywhere", "after_train")]


def test_a_skipped_patch_does_not_run_and_its_record_says_why(bench: Bench) -> None:
    bench.patch("old", versions="<0.3")

    (record,) = bench.run()

    assert bench.ran == []
    assert record == PatchRecord(id="old", phase="setup", status="skipped", reason="titan 0.3.0 is not in <0.3")


def test_records_survive_json(bench: Bench) -> None:
    bench.patch("one")
    (record,) = bench.run()

    assert PatchRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_a_failing_patch_stops_the_run_with_its_id_and_why(bench: Bench) -> None:
    bench.patch("before", priority=1)
    bench.patch("broken", ValueError("no such class"))
    bench.patch("after", priority=99)

    with pytest.raises(PatchError, match=r"'broken' failed in phase setup: ValueError: no such class") as caught:
        bench.run()

    assert "Ranks would hang." in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [(r.id, r.status) for r in caught.value.records] == [("before", "applied"), ("broken", "failed")]
    assert ("after", "setup") not in bench.ran


def test_a_patch_that_only_warns_lets_the_run_go_on(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.patch("broken", ValueError("no such class"), on_error="warn")
    bench.patch("next")

    with caplog.at_level(logging.WARNING):
        records = bench.run()

    assert [record.status for record in records] == ["failed", "applied"]
    assert "patch broken failed" in caplog.text
    assert "Ranks would hang." in caplog.text


def test_a_condition_that_raises_is_a_failure_of_the_patch(bench: Bench) -> None:
    bench.patch("asks", condition=lambda context: 1 // 0 > 0, when="half of the ranks")

    with pytest.raises(PatchError, match=r"condition \(half of the ranks\) failed: ZeroDivisionError"):
        bench.run()

    assert bench.ran == []


@pytest.mark.parametrize("error", [UserError("two optimizers"), HostError("no driver")])
def test_what_a_patch_asks_of_the_user_or_the_host_stays_that(bench: Bench, error: Exception) -> None:
    bench.patch("validates", error)

    with pytest.raises(type(error)) as caught:
        bench.run()

    assert caught.value is error
    assert "validates" in caught.value.__notes__[0]


def test_an_interrupt_is_never_taken_for_a_failing_patch(bench: Bench) -> None:
    @bench.registry.register("stopped", backend="titan", phase="setup", why="Stops.", on_error="warn")
    def patch(context: PatchContext) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run()


def test_a_mistyped_patch_id_in_the_job_stops_before_any_patch_runs(bench: Bench) -> None:
    bench.patch("one")

    with pytest.raises(UserError, match=r"patches\.disabled: 'onee' matches no registered patch"):
        bench.run(overrides={"patches.disabled": ["onee"]})

    assert bench.ran == []


def test_an_id_of_another_phase_is_known(bench: Bench) -> None:
    bench.patch("later", phase="after_train")

    assert bench.run(overrides={"patches.disabled": ["later"]}) == []


def test_the_environment_is_heeded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.patch("one")
    bench.patch("two")
    monkeypatch.setenv("PRIMUS_PATCHES", "two")

    bench.run()

    assert bench.ran == [("two", "setup")]
