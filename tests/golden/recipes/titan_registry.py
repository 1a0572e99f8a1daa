"""Two configurations of a team, as torchtitan 0.3 has them."""

from torchtitan.trainer import Trainer


def llama3_8b() -> Trainer.Config:
    config = Trainer.Config(
        loss=ChunkedLossWrapper.Config(num_chunks=4, loss_fn=CrossEntropyLoss.Config()),
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=model_registry("8B", converters=[Float8LinearConverter.Config(recipe_name="rowwise")]),
        optimizer=default_adamw(lr=3e-4, weight_decay=0.2),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=100, decay_type="cosine"),
        training=TrainingConfig(local_batch_size=2, global_batch_size=128, seq_len=8192, steps=1000),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4", dataset_path="/data/c4"),
        parallelism=ParallelismConfig(pipeline_parallel_degree=2, pipeline_parallel_schedule="Interleaved1F1B"),
        checkpoint=CheckpointManager.Config(enable=True, interval=200, last_save_model_only=False),
        activation_checkpoint=FullAC.Config(),
        compile=CompileConfig(enable=True, components=["model"]),
        comm=CommConfig(train_timeout_seconds=600),
    )
    config.training.steps = 1500
    config.debug.seed = 7
    return config


def tiny() -> Trainer.Config:
    return Trainer.Config(training=TrainingConfig(steps=3))
