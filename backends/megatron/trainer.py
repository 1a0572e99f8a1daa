"""The pretraining stage on megatron-core: our trainer contract around our own loop.

`init` builds groups, model, optimizer and data and loads what the run starts from; after `cleanup` nothing of
Megatron's global state is left, so that another training can follow in the same process.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from primus_hydra.backends.megatron import parallel
from primus_hydra.backends.megatron.batch_size import BatchSize, batch_size
from primus_hydra.backends.megatron.batches import open_batches
from primus_hydra.backends.megatron.checkpointer import Checkpointer
from primus_hydra.backends.megatron.flops import size_of
from primus_hydra.backends.megatron.hf_export import export_hf
from primus_hydra.backends.megatron.hf_load import load_hf
from primus_hydra.backends.megatron.limits import packs_documents
from primus_hydra.backends.megatron.loop import Loop, Parts
from primus_hydra.backends.megatron.metrics import Reporter
from primus_hydra.backends.megatron.microbatches import Pass
from primus_hydra.backends.megatron.model import build_chunks
from primus_hydra.backends.megatron.native import optimizer_overrides
from primus_hydra.backends.megatron.optimizer import build_optimizer, disconnect, whole_parameters, wrap
from primus_hydra.backends.megatron.profiling import Profiler, profiled_ranks
from primus_hydra.backends.megatron.progress import Progress
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.backends.megatron.validation import Validator
from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import BaseTrainer, RankContext

_log = logging.getLogger(__name__)


class PretrainTrainer(BaseTrainer):
    """Trains a model of our configuration with megatron-core."""

    native: CoreConfig

    def __init__(self, native: CoreConfig, job: JobConfig, context: RankContext) -> None:
        super().__init__(native, job, context)
        self.progress = Progress()
        self.parts: Parts | None = None

    def setup(self) -> None:
        """Nothing is needed before the groups."""

    def init(self) -> None:
        """Build process groups, model, optimizer and data, and load the checkpoint or the weights to start from."""
        job, cpu = self.job, self.job.platform.is_cpu
        training = job.training
        parallel.begin(self.native, self.context, cpu=cpu, seed=training.seed, deterministic=training.deterministic)
        device = parallel.device(cpu=cpu)
        bare = build_chunks(self.native)
        if self.context.resume_from is None:
            self._load_hf(bare)
        chunks = wrap(bare, self.native, device)
        self.parts = self._build(chunks, device)
        self._load()

    def train(self) -> None:
        """Train, or write a seed checkpoint if that is what the configuration asks for."""
        parts = self._built
        if self.native.checkpoint.create_seed:
            parts.checkpointer.save_now(0)
            return
        Loop(self.native, self.job, parts).run(self._profiler())
        # The last save may still be on its way; nothing is exported from a run that was stopped early.
        parts.checkpointer.close()
        if self.job.checkpoint.export_hf and self.step == self.job.training.steps:
            self._export()

    def cleanup(self, on_error: bool = False) -> None:
        """Release everything. After a failure nothing is waited for: other ranks may be gone."""
        try:
            if self.parts is not None and on_error:
                self.parts.checkpointer.give_up()
            elif self.parts is not None:
                self.parts.checkpointer.close()
        finally:
            self.parts = None
            disconnect(self.native)
            parallel.end(abort=on_error)

    @property
    def step(self) -> int:
        """Steps finished so far, those of earlier attempts included."""
        return self.progress.step

    @property
    def _built(self) -> Parts:
        if self.parts is None:
            raise RuntimeError("init() must run before train()")
        return self.parts

    def _build(self, chunks: list[Any], device: torch.device) -> Parts:
        config, job, context = self.native, self.job, self.context
        optimizer = build_optimizer(config, chunks, optimizer_overrides(config.optimizer))
        schedule = StepSchedule(config.schedule, optimizer)
        sizes = self._sizes()
        run = Pass(
            chunks,
            device,
            seq_length=job.training.seq_length,
            pack_documents=packs_documents(job),
        )
        return Parts(
            pulse=context.pulse,
            chunks=chunks,
            optimizer=optimizer,
            schedule=schedule,
            progress=self.progress,
            source=open_batches(config, job, context, "train"),
            sizes=sizes,
            run=run,
            validator=self._validator(sizes, run),
            checkpointer=Checkpointer(
                job=job,
                config=config,
                context=context,
                chunks=chunks,
                optimizer=optimizer,
                scheduler=schedule,
                progress=self.progress,
            ),
            reporter=self._reporter(device),
        )

    def _sizes(self) -> BatchSize:
        # The interleaved schedule takes microbatches in groups, one for each pipeline rank.
        interleaved = self.native.transformer.virtual_pipeline_model_parallel_size is not None
        return batch_size(
            self.native.batch,
            self.context.layout,
            rank=self.context.rank,
            multiple_of_microbatches=self.context.layout.pp if interleaved else 1,
        )

    def _validator(self, sizes: BatchSize, run: Pass) -> Validator | None:
        if not self.job.validation.enable:
            return None
        source = open_batches(self.native, self.job, self.context, "validation")
        return Validator(self.job.validation, source, run, layout=sizes.layout, multiple=sizes.multiple)

    def _reporter(self, device: torch.device) -> Reporter:
        job, size = self.job, size_of(self.native, self.job.training.seq_length)
        peak = None if self.native.transformer.fp8 else job.platform.peak_tflops.get(job.precision.compute)
        if self.context.is_main:
            _log.info("%s parameters, %s FLOP per token", f"{size.parameters:,}", f"{size.flops_per_token:,}")
        return Reporter(
            self.context.metrics.log,
            owns_loss=parallel.owns_loss(),
            world_size=self.context.world_size,
            last_step=job.training.steps,
            flops_per_token=size.flops_per_token,
            peak_flops=peak * 1e12 if peak else None,
            device=device,
        )

    def _profiler(self) -> Profiler:
        settings, ranks = self.job.profiler, profiled_ranks(self.native.loop.profile_ranks, self.context.world_size)
        return Profiler(
            settings,
            self.context.paths.profiles,
            rank=self.context.rank,
            step=self.step,
            cuda=not self.job.platform.is_cpu,
            recorded=self.context.rank in ranks,
        )

    def _load_hf(self, bare: list[Any]) -> None:
        folder = hf_folder(self.job.init_from)
        if folder is not None:
            load_hf(bare, folder, self.job, self.native.model.vocab_size)

    def _load(self) -> None:
        """Load the checkpoint to resume, or the weights of another run."""
        checkpointer, source = self._built.checkpointer, self.job.init_from
        if self.context.resume_from is not None:
            checkpointer.load(self.context.paths.checkpoint(self.context.resume_from), weights_only=False)
        elif source is not None and hf_folder(source) is None:
            checkpointer.load(Path(source).expanduser().resolve(), weights_only=True)

    def _export(self) -> None:
        with whole_parameters(self.native, self._built.chunks):
            export_hf(
                self._built.chunks,
                self.context.paths.export,
                self.job,
                self.context,
                getattr(torch, self.job.checkpoint.export_dtype),
            )
