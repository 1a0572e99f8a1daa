"""One rank that trains a small model several times, each time with other patches; a test reads what it saw.

Usage: `python -m tests.integration.torchtitan.patches_driver FILE`, with DRIVER_RANK and DRIVER_FOLDER in the
environment. FILE holds the stages. torchtitan is imported once; every stage is a forked child, so that no patch
outlives its stage.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from primus_hydra.patching import PatchContext, Selection, load_patches, run_patches
from tests.support import make_job

GLOBAL_BATCH, LENGTH, VOCABULARY, STEPS = 4, 64, 128, 3


@dataclass(kw_only=True)
class Stage:
    """One training: patches left out, layout, a model with experts (`latent`), a rank that ends a second late."""

    port: int
    world: int
    disabled: list[str] = field(default_factory=list)
    parallel: dict[str, int] = field(default_factory=dict)
    latent: bool = False
    late_rank: int | None = None


@dataclass(kw_only=True)
class Report:
    """What one rank saw of one training."""

    losses: list[float] = field(default_factory=list)
    shards: dict[str, str] = field(default_factory=dict)
    seconds_at_end: float = 0.0
    error: str | None = None


def context(stage: Stage) -> PatchContext:
    """Return the patch context of a job for the processor."""
    return PatchContext(
        job=make_job({f"parallel.{key}": value for key, value in stage.parallel.items()}),
        backend="torchtitan",
        backend_version="0.3.0",
        torch_version="2.14.1",
    )


def native(stage: Stage) -> Any:
    """Return the torchtitan configuration of a stage."""
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    from torchtitan.trainer import Trainer

    from primus_hydra.backends.torchtitan.models.spec import model_spec
    from tests.integration.torchtitan.patches_data import CountingLoader, NoTokenizer
    from tests.unit.backends.torchtitan.titan_models import LATENT, neutral

    config = Trainer.Config(
        model_spec=model_spec(neutral(LATENT if stage.latent else None), vocab_size=VOCABULARY, seq_length=LENGTH),
        hf_assets_path="",
        dump_folder=os.environ["DRIVER_FOLDER"],
        tokenizer=NoTokenizer.Config(),
        dataloader=CountingLoader.Config(),
        optimizer=default_adamw(lr=1e-2),
        training=TrainingConfig(
            local_batch_size=GLOBAL_BATCH // stage.parallel.get("dp_shard", 1),
            global_batch_size=GLOBAL_BATCH,
            seq_len=LENGTH,
            steps=STEPS,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=stage.parallel.get("dp_shard", 1),
            tensor_parallel_degree=stage.parallel.get("tp", 1),
            expert_parallel_degree=stage.parallel.get("ep", 1),
        ),
        loss=ChunkedLossWrapper.Config(num_chunks=1, loss_fn=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY)),
        activation_checkpoint=None,
    )
    config.lr_scheduler.warmup_steps = 0
    config.metrics.log_freq = 1
    config.debug.seed = 7
    config.debug.enable_structured_logging = False
    return config


def train(stage: Stage) -> Report:
    """Train one stage; call it in a process that has not patched torchtitan yet."""
    import torch.distributed as dist

    os.environ |= {"WORLD_SIZE": str(stage.world), "RANK": os.environ["DRIVER_RANK"], "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(stage.port)}
    report = Report()
    config = native(stage)
    selection = Selection(disabled=tuple(stage.disabled))
    run_patches("build_args", replace(context(stage), native=config), selection=selection)
    try:
        _run(config, report, int(os.environ["RANK"]) == stage.late_rank)
    except RuntimeError as error:
        report.error = str(error)
    finally:
        dist.destroy_process_group()
    return report


def _run(config: Any, report: Report, late: bool) -> None:
    trainer = config.build()
    for name, parameter in trainer.model_parts[0].named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        report.shards[name] = hashlib.sha256(local.detach().numpy().tobytes()).hexdigest()
    log = trainer.metrics_processor.log
    finished = 0.0

    def record(step: int, loss: float, *rest: Any, **more: Any) -> None:
        nonlocal finished
        report.losses.append(loss)
        log(step, loss, *rest, **more)
        if step == STEPS and late:
            time.sleep(1)
        finished = time.monotonic()

    trainer.metrics_processor.log = record
    trainer.train()
    report.seconds_at_end = time.monotonic() - finished
    trainer.close()


def in_a_child(stage: Stage, file: Path) -> None:
    """Train a stage in a forked child, which writes its report to `file`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            file.write_text(json.dumps(vars(train(stage))))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"stage {file.name} failed")


def main(file: Path) -> None:
    """Import torchtitan with the early patches, then train every stage that this rank is part of."""
    stages = [Stage(**entry) for entry in json.loads(file.read_text())]
    rank = int(os.environ["DRIVER_RANK"])
    load_patches("torchtitan")
    run_patches("before_import", context(stages[0]))
    native(stages[0])
    for index, stage in enumerate(stages):
        if rank < stage.world:
            in_a_child(stage, file.with_name(f"stage-{index}-rank-{rank}.json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
