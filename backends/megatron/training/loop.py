"""Upstream's `pretrain` between our hooks.

A stop on which all ranks agree makes the step the last one: upstream then ends as after its last step, saves it if it
is not saved, and returns, where its own ways to stop early would end the process.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from megatron.core.enums import ModelType
from megatron.training import checkpointing, ft_integration, training
from megatron.training.argument_utils import pretrain_cfg_container_from_args

from primus_hydra.backends.megatron.agreement import Ranks
from primus_hydra.backends.megatron.checkpoint_files import ThreadedSave
from primus_hydra.backends.megatron.hf_load import load_hf
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.sections import Schedule
from primus_hydra.backends.megatron.training.checkpoints import CheckpointPlaces
from primus_hydra.backends.megatron.training.hooks import Hooks
from primus_hydra.backends.megatron.training.native import UpstreamConfig
from primus_hydra.backends.megatron.training.provider import DataProvider, ModelProvider
from primus_hydra.backends.megatron.training.saves import Saves
from primus_hydra.backends.megatron.training.watch import Watch
from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, UserError
from primus_hydra.runtime.contracts import RankContext


class UpstreamSchedule:
    """Our schedule where upstream expects its own: the step decides, not the number of updates."""

    def __init__(self, schedule: StepSchedule) -> None:
        self.schedule = schedule

    def step(self, increment: int) -> None:
        """Nothing: the step that follows is set once the present one is reported."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the schedule stands."""
        return self.schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was saved."""
        self.schedule.load_state_dict(state)


class UpstreamLoop:
    """Runs `pretrain` once. `watched` is called with model and schedule when both are there, the checkpoint loaded."""

    def __init__(
        self,
        native: UpstreamConfig,
        job: JobConfig,
        context: RankContext,
        watched: Callable[[list[Any], StepSchedule], Watch],
    ) -> None:
        self._native = native
        self._job = job
        self._context = context
        self._watched = watched
        self._saves: Saves | None = None
        self._watch: Watch | None = None
        self.chunks: list[Any] = []

    def run(self, forward_step: Callable[..., Any]) -> None:
        """Train to the end, or to an agreed stop; what is to be saved is on the disk when this returns."""
        hooks = Hooks()
        try:
            self._install(hooks)
            training.pretrain(
                **self._container(),
                train_valid_test_dataset_provider=DataProvider(self._native, self._job, self._context),
                model_type=ModelType.encoder_or_decoder,
                forward_step_func=forward_step,
                model_provider=ModelProvider(self._native),
            )
        finally:
            hooks.remove()

    def _container(self) -> dict[str, Any]:
        if "cfg_container" not in inspect.signature(training.pretrain).parameters:
            return {}
        with warnings.catch_warnings():
            # Upstream would rather build the model itself, of modules that need Transformer Engine.
            warnings.filterwarnings("ignore", message=r"(?s).*It is recommended to use a ModelConfig")
            return {"cfg_container": pretrain_cfg_container_from_args(self._native.args)}

    def _install(self, hooks: Hooks) -> None:
        places = CheckpointPlaces(self._context.paths, self._start)
        # Reads the process's own command line, for a package that is refused.
        hooks.replace(ft_integration, "setup", lambda original: lambda: None)
        hooks.replace(checkpointing, "get_checkpoint_name", lambda original: places.name)
        hooks.replace(checkpointing, "get_checkpoint_tracker_filename", lambda original: places.tracker)
        hooks.replace(checkpointing, "TorchDistSaveShardedStrategy", lambda original: self._save_strategy)
        hooks.replace(checkpointing, "schedule_async_save", lambda original: self._schedule_save)
        hooks.replace(training, "maybe_finalize_async_save", lambda original: self._finalize)
        hooks.replace(training, "save_checkpoint", self._saved)
        hooks.replace(training, "load_checkpoint", self._loaded)
        hooks.replace(training, "get_megatron_optimizer_config", _decaying_all)
        hooks.replace(training, "get_optimizer_param_scheduler", lambda original: self._schedule)
        hooks.replace(training, "setup_model_and_optimizer", self._set_up)
        hooks.replace(training, "training_log", self._logged)
        hooks.replace(training, "evaluate_and_print_results", lambda original: self._evaluate)
        hooks.replace(training, "checkpoint_and_decide_exit", self._decided)
        if self._native.packs_documents:
            hooks.replace(training, "get_forward_backward_func", _in_one_row)

    @property
    def _start(self) -> str | None:
        """The folder of the checkpoint whose weights begin the run."""
        return self._native.args.load if self._native.args.finetune else None

    @property
    def _following(self) -> Watch:
        if self._watch is None:
            raise RuntimeError("upstream took a step before it had a model")
        return self._watch

    def _schedule(self, optimizer: Any) -> UpstreamSchedule:
        settings: Schedule = self._native.schedule
        return UpstreamSchedule(StepSchedule(settings, optimizer))

    def _set_up(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_up(*args: Any, **named: Any) -> Any:
            chunks, optimizer, schedule = original(*args, **named)
            weights = hf_folder(self._job.init_from)
            if weights is not None and self._context.resume_from is None:
                load_hf(chunks, weights.resolve(), self._job, self._native.model.vocab_size)
                optimizer.reload_model_params()
            self.chunks = chunks
            self._watch = self._watched(chunks, schedule.schedule)
            return chunks, optimizer, schedule

        return set_up

    def _loaded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any, **named: Any) -> Any:
            loaded, failure = Ranks().all_succeed(lambda: original(*args, **named))
            if failure is not None:
                raise self._unloadable(failure)
            return loaded

        return load

    def _unloadable(self, failure: str) -> UserError:
        resumed = self._context.resume_from
        folder = self._start if resumed is None else str(self._context.paths.checkpoint(resumed))
        what = f"the checkpoint cannot be loaded: {failure}"
        hint = "choose the model and the layout that were saved, or another checkpoint"
        return UserError(Problem(key="init_from" if resumed is None else "resume", what=what, where=folder, hint=hint))

    @property
    def _saving(self) -> Saves:
        # Needs the ranks' groups, which upstream makes.
        if self._saves is None:
            self._saves = Saves(self._context, self._job.checkpoint)
        return self._saves

    def _schedule_save(self, request: Any) -> None:
        self._saving.schedule(request)

    def _save_strategy(self, **_: Any) -> ThreadedSave:
        strategy = ThreadedSave()
        strategy.copies = self._saving.in_background
        return strategy

    def _saved(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(iteration: int, *args: Any, **named: Any) -> Any:
            last = iteration == self._native.args.train_iters
            return original(iteration, *args, **named) if self._saving.begin(iteration, last=last) else None

        return save

    def _finalize(self, blocking: bool = False, terminate: bool = False) -> None:
        if self._saves is not None:
            self._saves.finish() if blocking else self._saves.poll()

    def _logged(self, original: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(original)

        def log(*args: Any, **named: Any) -> Any:
            result = original(*args, **named)
            given = parameters.bind(*args, **named).arguments
            self._following.stepped(
                given["loss_dict"],
                given["iteration"],
                grad_norm=given["grad_norm"],
                loss_scale=given["loss_scale"],
                skipped=bool(given["skipped_iter"]),
            )
            return result

        return log

    def _evaluate(self, *args: Any, **named: Any) -> None:
        self._following.measure(self.chunks)

    def _decided(self, original: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(original)

        def decide(*args: Any, **named: Any) -> Any:
            leaves = original(*args, **named)
            watch = self._following
            if not leaves and watch.stops(watch.progress.step):
                self._native.args.train_iters = watch.progress.step
                self._native.args.do_valid = False
                if not self._saving.ends_with(watch.progress.step):
                    # Upstream takes it for saved; now that it is the last one, it may use more room, or fails.
                    _save_again(parameters.bind(*args, **named).arguments)
            return leaves

        return decide


def _save_again(given: Mapping[str, Any]) -> None:
    names = inspect.signature(training.save_checkpoint_and_time).parameters
    training.save_checkpoint_and_time(**{name: given[name] for name in names if name in given})


def _decaying_all(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out upstream's exceptions for single parameters: the neutral weight decay is for all of them."""

    def config(args: Any) -> tuple[Any, dict[Any, Any]]:
        return original(args)[0], {}

    return config


def _in_one_row(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the schedules the shape of packed samples, which lie behind each other in one row."""

    def get(*args: Any, **named: Any) -> Callable[..., Any]:
        schedule = original(*args, **named)

        def run(**sizes: Any) -> Any:
            rows = sizes["micro_batch_size"]
            return schedule(**{**sizes, "seq_length": sizes["seq_length"] * rows, "micro_batch_size": 1})

        return run

    return get
