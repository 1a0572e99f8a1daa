"""The pretraining stage in upstream's loop: our trainer contract around `megatron.training.pretrain`.

Upstream builds the groups, the model, the optimizer and the data, and loads the checkpoint, in the same call that
trains; so all of it happens in `train`. After `cleanup` nothing of Megatron's global state is left.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
from megatron.training import async_utils, global_vars, training

from primus_hydra.backends.megatron import parallel
from primus_hydra.backends.megatron.batches import open_batches
from primus_hydra.backends.megatron.flops import size_of
from primus_hydra.backends.megatron.hf_export import export_hf
from primus_hydra.backends.megatron.metrics import Reporter
from primus_hydra.backends.megatron.microbatches import Pass
from primus_hydra.backends.megatron.profiling import Profiler
from primus_hydra.backends.megatron.progress import Progress
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.training.forward import UpstreamForwardStep
from primus_hydra.backends.megatron.training.loop import UpstreamLoop
from primus_hydra.backends.megatron.training.native import UpstreamConfig
from primus_hydra.backends.megatron.training.watch import Watch
from primus_hydra.backends.megatron.validation import Validator
from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import BaseTrainer, RankContext


class UpstreamTrainer(BaseTrainer):
    """Trains a model of our configuration in upstream's loop."""

    native: UpstreamConfig

    def __init__(self, native: UpstreamConfig, job: JobConfig, context: RankContext) -> None:
        super().__init__(native, job, context)
        self.progress = Progress()
        self._began = False

    def setup(self) -> None:
        """Nothing is needed before the global state."""

    def init(self) -> None:
        """Set upstream's global state: arguments, timers, the number of microbatches."""
        self._began = True
        global_vars.set_global_variables(self.native.args, build_tokenizer=False)

    def train(self) -> None:
        """Train until the last step or an agreed stop, and export the weights if that is asked for."""
        args, job = self.native.args, self.job
        device = torch.device("cpu") if job.platform.is_cpu else torch.device("cuda", self.context.local_rank)
        forward = UpstreamForwardStep(
            device,
            pack_documents=self.native.packs_documents,
            checks_loss=args.check_for_nan_in_loss_and_grad,
            checks_spikes=args.check_for_spiky_loss,
        )
        with self._profiler() as profiler:
            loop = UpstreamLoop(
                self.native,
                job,
                self.context,
                lambda chunks, schedule: self._watch(chunks, schedule, device, profiler),
            )
            loop.run(forward)
        if job.checkpoint.export_hf and self.step == job.training.steps:
            dtype = getattr(torch, job.checkpoint.export_dtype)
            export_hf(loop.chunks, self.context.paths.export, job, self.context, dtype)

    def cleanup(self, on_error: bool = False) -> None:
        """Release everything. After a failure nothing is waited for: other ranks may be gone."""
        if not self._began:
            return
        try:
            parallel.end(abort=on_error)
        finally:
            training.destroy_global_state()
            global_vars.unset_global_variables()
            async_utils._async_calls_queue = None
            # Upstream may collect garbage on its own schedule and leave the collector off.
            gc.enable()

    @property
    def step(self) -> int:
        """Steps finished so far, those of earlier attempts included."""
        return self.progress.step

    def _watch(self, chunks: list[Any], schedule: StepSchedule, device: torch.device, profiler: Profiler) -> Watch:
        watch = Watch(
            job=self.job,
            args=self.native.args,
            progress=self.progress,
            schedule=schedule,
            reporter=self._reporter(device),
            profiler=profiler,
            validator=self._validator(chunks, device),
            stop_agreed=self.context.stop.agreed,
        )
        watch.begin()
        return watch

    def _validator(self, chunks: list[Any], device: torch.device) -> Validator | None:
        if not self.job.validation.enable:
            return None
        layout, packed = self.context.layout, self.native.packs_documents
        multiple = layout.micro_batch_size * layout.dp * (layout.pp if self.job.parallel.vpp > 1 else 1)
        return Validator(
            self.job.validation,
            open_batches(self.native, self.job, self.context, "validation"),
            Pass(chunks, device, seq_length=self.job.training.seq_length, pack_documents=packed),
            layout=layout,
            multiple=multiple,
        )

    def _reporter(self, device: torch.device) -> Reporter:
        job, size = self.job, size_of(self.native, self.job.training.seq_length)
        peak = None if self.native.transformer.fp8 else job.platform.peak_tflops.get(job.precision.compute)
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
        ranks = self.native.args.profile_ranks or [0]
        return Profiler(
            self.job.profiler,
            self.context.paths.profiles,
            rank=self.context.rank,
            step=self.context.resume_from or 0,
            cuda=not self.job.platform.is_cpu,
            recorded=self.context.rank in ranks,
        )
