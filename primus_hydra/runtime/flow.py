"""One attempt on one rank: from the resolved configuration to the trainer's end, in a fixed order.

Patches run between the steps, in the phases named after what they can still change. Whatever fails, the trainer is
cleaned up exactly once, and the error passes on to whoever started the rank.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from primus_hydra.config.instantiate import load_target
from primus_hydra.config.schema import JobConfig
from primus_hydra.patching import (
    PatchContext,
    PatchError,
    PatchRecord,
    Phase,
    expected_records,
    load_patches,
    run_patches,
)
from primus_hydra.run.atomic import write_json
from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.manifest import read_manifest, verify
from primus_hydra.run.model_shape import shape_of
from primus_hydra.runtime.contracts import BackendAdapter, BaseTrainer, RankContext, StepMetrics
from primus_hydra.runtime.distributed import RankNumbers
from primus_hydra.runtime.generators import seed_generators
from primus_hydra.runtime.ledger import FileLedger
from primus_hydra.runtime.preload import Preloaded, before_import_context, preloaded
from primus_hydra.runtime.pulse import NoPulse, PulseWriter
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.stages import Stages
from primus_hydra.runtime.stop import AgreedStop

_LOG = logging.getLogger(__name__)


class ClosableSink(Protocol):
    """A metrics sink that has an end; `failed` is how the attempt ended."""

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""

    def close(self, *, failed: bool = False) -> None:
        """Close it."""


@dataclass(frozen=True, kw_only=True)
class FlowEnd:
    """How the training ended: after its last step, or after an agreed stop; `step` is saved in both cases."""

    status: Literal["finished", "stopped"]
    step: int


class LazySink:
    """Opens the real sink at the first step: only the rank that owns the loss ever reports, and it alone writes."""

    def __init__(self, opener: Callable[[], ClosableSink]) -> None:
        self._opener = opener
        self._sink: ClosableSink | None = None

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""
        if self._sink is None:
            self._sink = self._opener()
        self._sink.log(metrics)

    def close(self, *, failed: bool = False) -> None:
        """Close the real sink, if there is one."""
        if self._sink is not None:
            self._sink.close(failed=failed)


class RankFlow:
    """The flow of one rank: `run` once."""

    def __init__(
        self,
        spec: AttemptSpec,
        job: JobConfig,
        *,
        numbers: RankNumbers,
        stop: AgreedStop,
        metrics: LazySink,
        pulse: PulseWriter | None = None,
        stages: Stages | None = None,
    ) -> None:
        self._spec = spec
        self._job = job
        self._numbers = numbers
        self._stop = stop
        self._metrics = metrics
        self._pulse = pulse or NoPulse()
        self._stages = stages or spec.stages(f"rank-{numbers.rank}", numbers.restart)
        self._trainer: BaseTrainer | None = None
        self._preloaded = preloaded(spec.attempt_paths.spec)
        self._patches = _Patches(
            before_import_context(spec, job, spec.backend_version), spec.attempt_paths.patches, record=numbers.rank == 0
        )

    @property
    def step(self) -> int | None:
        """Steps finished so far; None before there is a trainer."""
        return self._trainer.step if self._trainer is not None else None

    def run(self) -> FlowEnd:
        """Train; returns when the last step or an agreed stop is saved.

        Raises what fails: UserError and HostError for what a person can mend, PatchError, or the backend's own errors.
        """
        failed = True
        try:
            end = self._run()
            failed = False
            return end
        finally:
            self._metrics.close(failed=failed)

    def _run(self) -> FlowEnd:
        adapter = self._adapter()
        context = self._context(adapter.detect_backend_version())
        self._patches.update(backend_version=context.backend_version)
        self._patches.before_import(self._preloaded)
        adapter.prepare_backend()
        seed_generators(self._job.training.seed)
        native = adapter.convert_config(context)
        self._patches.update(native=native)
        self._patches.apply("build_args")
        self._trainer = self._trainer_class(adapter)(native, self._job, context)
        self._patches.update(trainer=self._trainer)
        self._stages.reached("configured")
        return self._train(self._trainer)

    def _adapter(self) -> BackendAdapter:
        """Return the adapter, with the backend found and its patches registered, as a fork server leaves it."""
        if self._preloaded is not None and self._preloaded.adapter is not None:
            return self._preloaded.adapter
        adapter = load_target(self._job.backend._target_, BackendAdapter, key="backend._target_")(self._job)  # type: ignore[type-abstract]
        adapter.setup_backend_path()
        load_patches(self._job.backend.name)
        return adapter

    def _train(self, trainer: BaseTrainer) -> FlowEnd:
        try:
            self._patches.apply("setup")
            trainer.setup()
            trainer.init()
            self._stages.reached("built")
            self._patches.apply("before_train")
            trainer.train()
            self._patches.apply("after_train")
            end = self._end(trainer.step)
        except BaseException:
            try:
                trainer.cleanup(on_error=True)
            except Exception:  # the first error is the one to tell
                _LOG.exception("the cleanup after a failure failed too")
            raise
        trainer.cleanup()
        return end

    def _end(self, step: int) -> FlowEnd:
        stopped = self._stop.stopped_at is not None and step < self._job.training.steps
        if stopped and self._spec.joined:
            # The first of us that exits makes the outer launcher end the others: all must have saved before.
            self._stop.barrier()
        return FlowEnd(status="stopped" if stopped else "finished", step=step)

    def _trainer_class(self, adapter: BackendAdapter) -> type[BaseTrainer]:
        own = self._job.backend.trainer
        if own is None:
            return adapter.load_trainer_class(self._job.module)
        return load_target(own, BaseTrainer, key="backend.trainer")  # type: ignore[type-abstract]

    def _context(self, backend_version: str) -> RankContext:
        if self._spec.data is None:
            raise ValueError("this attempt was planned without prepared data, and cannot run")
        paths = self._spec.paths
        return RankContext(
            rank=self._numbers.rank,
            local_rank=self._numbers.local_rank,
            world_size=self._numbers.world_size,
            local_world_size=self._numbers.local_world_size,
            attempt=self._spec.attempt,
            restart=self._numbers.restart,
            paths=paths,
            layout=self._spec.layout,
            data=self._spec.data,
            resume_from=resume_step(self._spec, self._numbers.restart),
            backend_version=backend_version,
            metrics=self._metrics,
            stop=self._stop,
            ledger=FileLedger(paths, self._numbers.rank, _manifest_extra(self._spec, self._job, backend_version)),
            pulse=self._pulse,
        )


def resume_step(spec: AttemptSpec, restart: int) -> int | None:
    """Return the step to go on from: the attempt's, or after a restart the newest checkpoint made in this attempt.

    The same on all ranks: none of them writes at this moment. A checkpoint names its attempt; the time of its files
    would not do, as somebody may have set the clock.
    """
    if restart == 0:
        return spec.resume_from
    for step in reversed(checkpoint_steps(spec.paths)):
        folder = spec.paths.checkpoint(step)
        if verify(folder) is None and _saved_in(folder) == spec.attempt:
            return step
    return spec.resume_from


def _saved_in(folder: Path) -> object:
    extra = (read_manifest(folder) or {}).get("extra")
    return extra.get("attempt") if isinstance(extra, dict) else None


class _Patches:
    """Runs the phases and keeps the record of all of them, on rank 0, up to date on disk."""

    def __init__(self, context: PatchContext, path: Path, *, record: bool) -> None:
        self._context = context
        self._path = path
        self._record = record
        self._records: list[PatchRecord] = []

    def update(self, **known: object) -> None:
        self._context = replace(self._context, **known)  # type: ignore[arg-type]

    def before_import(self, server: Preloaded | None) -> None:
        """Apply the first phase, or take over what the fork server did, if that is what this rank would have done."""
        if server is None:
            return self.apply("before_import")
        self._records += server.records
        expected = expected_records("before_import", self._context)
        done = {(record.id, "skipped" if record.status == "skipped" else "applied") for record in server.records}
        if differing := expected ^ done:
            names = ", ".join(sorted({name for name, _ in differing}))
            raise RuntimeError(f"the fork server applied other patches than this rank would: {names}")
        return None

    def apply(self, phase: Phase) -> None:
        try:
            self._records += run_patches(phase, self._context)
        except PatchError as error:
            self._records += error.records
            raise
        finally:
            if self._record:
                write_json(self._path, {"patches": [record.to_json() for record in self._records]})


def _manifest_extra(spec: AttemptSpec, job: JobConfig, backend_version: str) -> dict[str, object]:
    vocab_size = spec.data.vocab_size if spec.data is not None else None
    return {
        "attempt": spec.attempt,
        "world_size": spec.world_size,
        "dp": spec.layout.dp,
        "backend": job.backend.name,
        "backend_version": backend_version,
        "model": {"name": job.model.name, **shape_of(job.model, vocab_size)},
    }
