"""The smallest script on megatron-core for a configuration of ours: one process, Megatron's own parts.

    python benchmarks/bare_megatron.py FOLDER [OVERRIDE...]

See `megatron_step_time.py`. It writes FOLDER/steps.json: seconds of each step, from its batch to its printed loss.
Model, optimizer and schedule are Megatron's with the values of the configuration; the samples are cut from the same
text in the order of the corpus. Nothing is saved, reported, measured or asked between the steps.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.layout import layout_of
from primus_hydra.data.prepare import prepare_data
from primus_hydra.patching import PatchContext, load_patches, run_patches
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import RankContext, StepMetrics


class _Nothing:
    """A run that records nothing and never stops."""

    def log(self, metrics: StepMetrics) -> None:
        """Forget it."""

    def agreed(self, step: int) -> bool:
        """Never stop."""
        return False

    def completed(self, step: int) -> None:
        """Forget it."""


def main(folder: Path, overrides: list[str]) -> None:
    """Train with Megatron's own parts."""
    job = compose(Request(overrides=overrides)).job
    layout, problems = layout_of(job)
    assert layout is not None, problems
    nothing = _Nothing()
    patches = PatchContext(job=job, backend="megatron", backend_version="0.16.1", torch_version="2.14.1")
    load_patches("megatron")
    run_patches("before_import", patches)
    from primus_hydra.backends.megatron.native import core_config

    context = RankContext(
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        attempt=1,
        restart=0,
        paths=RunPaths(folder),
        layout=layout,
        data=prepare_data(job, report=lambda _: None),
        resume_from=None,
        backend_version="0.16.1",
        metrics=nothing,
        stop=nothing,
        ledger=nothing,
    )
    _train(core_config(job, context), job, context, folder)


def _train(config: Any, job: Any, context: RankContext, folder: Path) -> None:
    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import get_megatron_optimizer
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.core.pipeline_parallel import get_forward_backward_func

    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(job.training.seed)
    layout, length = context.layout, job.training.seq_length
    model = GPTModel(
        config.transformer,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=config.model.vocab_size,
        max_sequence_length=length,
        position_embedding_type="rope",
        rotary_base=config.model.rotary_base,
        share_embeddings_and_output_weights=config.model.share_embeddings_and_output_weights,
    )
    wrapped = DistributedDataParallel(config.transformer, config.ddp, model)
    optimizer = get_megatron_optimizer(config.optimizer, [wrapped])
    peak, steps = job.optimizer.lr, job.training.steps
    schedule = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=peak,
        min_lr=peak * job.lr_schedule.min_lr_ratio,
        lr_warmup_steps=min(job.lr_schedule.warmup_steps, steps - 1),
        lr_decay_steps=steps,
        lr_decay_style="cosine",
        start_wd=job.optimizer.weight_decay,
        end_wd=job.optimizer.weight_decay,
        wd_incr_steps=steps,
        wd_incr_style="constant",
    )
    config.transformer.finalize_model_grads_func = finalize_model_grads
    config.transformer.grad_scale_func = optimizer.scale_loss
    batches = _batches(job, context)
    run = get_forward_backward_func()
    times = [time.perf_counter()]
    for step in range(steps):
        wrapped.zero_grad_buffer()
        optimizer.zero_grad()
        collected = run(
            forward_step_func=_forward,
            data_iterator=batches,
            model=[wrapped],
            num_microbatches=layout.microbatches,
            seq_length=length,
            micro_batch_size=layout.micro_batch_size,
            forward_only=False,
        )
        _, grad_norm, _ = optimizer.step()
        schedule.step(1)
        loss = sum(part[0] for part in collected) / sum(part[1] for part in collected)
        print(f"step {step + 1} loss {float(loss):.5f} grad norm {float(grad_norm):.4f}", flush=True)
        times.append(time.perf_counter())
    seconds = [after - before for before, after in itertools.pairwise(times)]
    (folder / "steps.json").write_text(json.dumps(seconds))


def _batches(job: Any, context: RankContext) -> Iterator[dict[str, Any]]:
    """Yield microbatches in the order of the corpus, with the mask that documents need."""
    import torch

    from primus_hydra.backends.megatron.masks import document_mask, documents_from_positions
    from primus_hydra.data.prepare import open_samples

    samples = open_samples(context.data, job, "train")
    size, first = context.layout.micro_batch_size, 0
    while True:
        rows = [samples.sample((first + offset) % len(samples)) for offset in range(size)]
        first += size
        positions = torch.stack([torch.from_numpy(row.positions) for row in rows])
        yield {
            "tokens": torch.stack([torch.from_numpy(row.inputs) for row in rows]),
            "labels": torch.stack([torch.from_numpy(row.labels) for row in rows]),
            "positions": positions,
            "mask": document_mask(documents_from_positions(positions)),
        }


def _forward(batches: Iterator[dict[str, Any]], model: Any) -> tuple[Any, Any]:
    batch = next(batches)
    output = model(batch["tokens"], batch["positions"], batch["mask"], labels=batch["labels"])
    return output, functools.partial(_loss, batch["labels"].numel())


def _loss(tokens: int, losses: Any) -> tuple[Any, Any, tuple[Any, int]]:
    import torch

    loss = losses.sum()
    return loss, torch.tensor(tokens, dtype=torch.int), (loss.detach(), tokens)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
