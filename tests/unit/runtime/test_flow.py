"""The order of one rank's steps, and that whatever fails is cleaned up once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.layout import layout_of
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import HostError
from primus_hydra.patching import PatchError, PatchRecord
from primus_hydra.run.manifest import read_manifest, write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime import flow as flow_module
from primus_hydra.runtime.contracts import BackendAdapter, BaseTrainer, StepMetrics
from primus_hydra.runtime.distributed import RankNumbers
from primus_hydra.runtime.flow import FlowEnd, LazySink, RankFlow, resume_step
from primus_hydra.runtime.signals import StopRequest
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.stop import AgreedStop
from tests.support import make_job

ORDER = [
    "setup_backend_path",
    "detect_backend_version",
    "patches before_import",
    "prepare_backend",
    "convert_config",
    "patches build_args",
    "load_trainer_class pretrain",
    "construct",
    "patches setup",
    "setup",
    "init",
    "patches before_train",
    "train",
    "patches after_train",
    "cleanup on_error=False",
]
NO_DATA = PreparedData(
    vocab_size=8,
    corpus_hash=None,
    tokens_dir=None,
    tokenizer_dir=None,
    documents=0,
    train_tokens=0,
    validation_tokens=0,
)


class Stage:
    """A backend that writes down what is asked of it, and breaks where `breaks` says."""

    def __init__(self, paths: RunPaths, breaks: str | None = None, stop_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.sink_closed: list[bool] = []
        self.request = StopRequest()
        self.paths = paths
        self.breaks = breaks
        self.stop_at = stop_at

    def note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.breaks:
            raise RuntimeError(f"broken in {call}")

    def flow(self, monkeypatch: pytest.MonkeyPatch, rank: int = 0) -> RankFlow:
        adapter, _ = self._classes()
        monkeypatch.setattr(flow_module, "load_target", lambda path, expected, key: adapter)
        monkeypatch.setattr(flow_module, "load_patches", lambda backend: ())
        monkeypatch.setattr(flow_module, "run_patches", self._run_patches)
        spec = make_spec(self.paths)
        numbers = RankNumbers(rank=rank, local_rank=rank, world_size=1, local_world_size=1)
        stop = AgreedStop(self.request, 1)
        return RankFlow(spec, make_job(), numbers=numbers, stop=stop, metrics=LazySink(lambda: Sink(self)))

    def _run_patches(self, phase: str, context: Any) -> list[PatchRecord]:
        assert (context.trainer is not None) == (phase in ("setup", "before_train", "after_train"))
        assert (context.native is None) == (phase == "before_import")
        self.note(f"patches {phase}")
        return [PatchRecord(id=f"p.{phase}", phase=phase, status="applied", reason="")]  # type: ignore[arg-type]

    def _classes(self) -> tuple[type[BackendAdapter], type[BaseTrainer]]:
        stage = self

        class Trainer(BaseTrainer):
            def __init__(self, native: Any, job: Any, context: Any) -> None:
                super().__init__(native, job, context)
                stage.note("construct")
                self._step = 0

            def setup(self) -> None:
                stage.note("setup")

            def init(self) -> None:
                stage.note("init")

            def train(self) -> None:
                stage.note("train")
                for step in range(1, self.job.training.steps + 1):
                    self._step = step
                    self.context.metrics.log(StepMetrics(step=step, loss=1.0, lr=0.1))
                    if step == stage.stop_at:
                        stage.request.signal = 15
                    if self.context.stop.agreed(step):
                        return
                if stage.paths.checkpoint(self._step).is_dir():
                    self.context.ledger.completed(self._step)

            def cleanup(self, on_error: bool = False) -> None:
                stage.note(f"cleanup on_error={on_error}")

            @property
            def step(self) -> int:
                return self._step

        class Adapter(BackendAdapter):
            name = "fake"

            def setup_backend_path(self) -> None:
                stage.note("setup_backend_path")

            def detect_backend_version(self) -> str:
                stage.note("detect_backend_version")
                return "1.0"

            def prepare_backend(self) -> None:
                stage.note("prepare_backend")

            def convert_config(self, context: Any) -> Any:
                stage.note("convert_config")
                return {"native": context.backend_version}

            def load_trainer_class(self, stage_name: str) -> type[BaseTrainer]:
                stage.note(f"load_trainer_class {stage_name}")
                return Trainer

        return Adapter, Trainer


class Sink:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def log(self, metrics: StepMetrics) -> None:
        pass

    def close(self, *, failed: bool = False) -> None:
        self.stage.sink_closed.append(failed)


def make_spec(paths: RunPaths, resume_from: int | None = None) -> AttemptSpec:
    layout, _ = layout_of(make_job())
    assert layout is not None
    return AttemptSpec(
        run_dir=str(paths.root),
        attempt=1,
        layout=layout,
        data=NO_DATA,
        resume_from=resume_from,
        backend_version="1.0",
    )


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


def test_the_steps_come_in_the_order_of_the_contract(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    stage = Stage(paths)
    assert stage.flow(monkeypatch).run() == FlowEnd(status="finished", step=4)
    assert stage.calls == ORDER
    assert stage.sink_closed == [False]


def test_a_checkpoint_says_who_saved_it_and_for_which_model(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    paths.checkpoint(4).mkdir(parents=True)
    (paths.checkpoint(4) / "shard").write_bytes(b"weights")
    Stage(paths).flow(monkeypatch).run()
    manifest = read_manifest(paths.checkpoint(4))
    assert manifest is not None
    extra = manifest["extra"]
    assert isinstance(extra, dict)
    assert (extra["backend"], extra["backend_version"], extra["attempt"]) == ("torchtitan", "1.0", 1)
    assert extra["model"]["name"] == "llama3_tiny"
    assert extra["model"]["num_hidden_layers"] == 2
    # The model leaves its vocabulary open, so the data's counts.
    assert extra["model"]["vocab_size"] == NO_DATA.vocab_size


def test_an_agreed_stop_ends_at_its_step(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    assert Stage(paths, stop_at=2).flow(monkeypatch).run() == FlowEnd(status="stopped", step=2)


def test_a_stop_at_the_last_step_is_a_finished_run(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    assert Stage(paths, stop_at=4).flow(monkeypatch).run() == FlowEnd(status="finished", step=4)


@pytest.mark.parametrize("breaks", ORDER)
def test_whatever_fails_is_cleaned_up_once(paths: RunPaths, monkeypatch: pytest.MonkeyPatch, breaks: str):
    stage = Stage(paths, breaks=breaks)
    with pytest.raises(RuntimeError, match=f"broken in {breaks}"):
        stage.flow(monkeypatch).run()
    cleanups = [call for call in stage.calls if call.startswith("cleanup")]
    there_is_a_trainer = ORDER.index(breaks) > ORDER.index("construct")
    wanted = "cleanup on_error=False" if breaks.startswith("cleanup") else "cleanup on_error=True"
    assert cleanups == ([wanted] if there_is_a_trainer else [])


def test_a_cleanup_that_fails_too_does_not_hide_the_first_error(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    stage = Stage(paths, breaks="train")
    note = stage.note

    def also_in_cleanup(call: str) -> None:
        note(call)
        if call == "cleanup on_error=True":
            raise RuntimeError("second")

    monkeypatch.setattr(stage, "note", also_in_cleanup)
    with pytest.raises(RuntimeError, match="broken in train"):
        stage.flow(monkeypatch).run()


def test_the_sink_learns_of_a_failure(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    stage = Stage(paths, breaks="patches after_train")
    flow = stage.flow(monkeypatch)
    with pytest.raises(RuntimeError):
        flow.run()
    assert stage.sink_closed == [True]
    assert flow.step == 4


def test_rank_0_alone_records_the_patches_of_all_phases(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    Stage(paths).flow(monkeypatch, rank=1).run()
    record = paths.attempt(1).patches
    assert not record.exists()
    Stage(paths).flow(monkeypatch).run()
    phases = [row["phase"] for row in json.loads(record.read_text())["patches"]]
    assert phases == ["before_import", "build_args", "setup", "before_train", "after_train"]


def test_the_patch_that_fails_is_on_record(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    flow = Stage(paths).flow(monkeypatch)
    broken = PatchRecord(id="p", phase="before_import", status="failed", reason="no")

    def fail(phase: str, context: Any) -> list[PatchRecord]:
        error = PatchError.__new__(PatchError)
        error.records = [broken]
        raise error

    monkeypatch.setattr(flow_module, "run_patches", fail)
    with pytest.raises(PatchError):
        flow.run()
    assert json.loads(paths.attempt(1).patches.read_text())["patches"] == [broken.to_json()]


def test_an_error_for_the_user_passes_through(paths: RunPaths, monkeypatch: pytest.MonkeyPatch):
    stage = Stage(paths)
    flow = stage.flow(monkeypatch)

    def refuse(call: str) -> None:
        raise HostError("no such device")

    monkeypatch.setattr(stage, "note", refuse)
    with pytest.raises(HostError, match="no such device"):
        flow.run()


def test_a_restart_goes_on_from_what_this_attempt_saved(paths: RunPaths):
    spec = make_spec(paths, resume_from=5)
    for step, attempt in ((5, 0), (9, 1), (12, 0)):
        _checkpoint(paths, step, attempt)
    spec.write()
    assert resume_step(spec, restart=0) == 5
    assert resume_step(spec, restart=1) == 9
    # Before the attempt began, by a clock that was set back since.
    os.utime(paths.checkpoint(9) / "primus_checkpoint.json", (900, 900))
    assert resume_step(spec, restart=1) == 9
    (paths.checkpoint(9) / "data").write_text("cut")
    assert resume_step(spec, restart=1) == 5


def _checkpoint(paths: RunPaths, step: int, attempt: int) -> None:
    paths.checkpoint(step).mkdir(parents=True)
    (paths.checkpoint(step) / "data").write_text("whole")
    write_manifest(paths.checkpoint(step), step, {"attempt": attempt})
