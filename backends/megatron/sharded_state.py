"""What a checkpoint of the core trainer holds, and how it is put back.

Weights, optimizer, schedule, counts, and the random states of every rank, beside a few facts about the layout that
saved them. Weights and optimizer are split anew when the layout changes. Random states are not: after such a change
every generator is seeded again, from the seed and the step, and dropout differs from a run that never changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import (
    ShardedObject,
    ShardedTensor,
    ShardedTensorFactory,
    is_main_replica,
)
from megatron.core.optimizer import MegatronOptimizer

from primus_hydra.backends.megatron import optimizer_state, parallel, random_states
from primus_hydra.backends.megatron.agreement import Ranks
from primus_hydra.backends.megatron.checkpoint_files import read, read_common, read_shapes
from primus_hydra.backends.megatron.checkpoint_limits import LAYOUT_WORDS, Shape, model_problems, optimizer_problems
from primus_hydra.backends.megatron.optimizer_state import OptimizerFacts, WantedShards
from primus_hydra.backends.megatron.progress import Progress
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.errors import HostError, Problem, UserError, raise_all
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.save_room import StatePart

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

_FACTS = "primus"
_RANDOM = "random_states"
_RESTORED = "restored_optimizer"
_LATER = "read_afterwards"


@dataclass(frozen=True, kw_only=True)
class ShardedState:
    """Everything of one rank that a checkpoint keeps. `chunks` are wrapped; `seed` is the run's."""

    config: CoreConfig
    context: RankContext
    chunks: list[Any]
    optimizer: MegatronOptimizer
    scheduler: StepSchedule
    progress: Progress
    ranks: Ranks
    seed: int

    def to_save(self) -> dict[str, Any]:
        """Return the state with its shards, which point into the live tensors; collective."""
        facts = optimizer_state.facts_of(self.optimizer, self.config.checkpoint.optimizer_format)
        weights = self._weights()
        optimizer = optimizer_state.shards_to_save(self.optimizer, weights, facts) if facts.started else {}
        return {
            **weights,
            "optimizer": optimizer,
            "schedule": self.scheduler.state_dict(),
            "progress": asdict(self.progress),
            _RANDOM: self._random_shard(random_states.capture(self._device)),
            _FACTS: {"layout": self._layout(), "optimizer": facts.to_json()},
        }

    def load_weights(self, folder: Path) -> None:
        """Load the weights alone; raises UserError if they are another model's, HostError if they cannot be read."""
        weights = self._weights()
        self._require_model(self._shapes(folder), weights, folder, "init_from")
        loaded = self._read(dict(weights), folder)
        self._put_weights(loaded)
        self.optimizer.reload_model_params()

    def load_all(self, folder: Path) -> None:
        """Go on where the checkpoint was saved; raises as `load_weights` does."""
        common = _read_by_all(self.ranks, folder, lambda: read_common(folder))
        layout, saved = _facts(common, folder)
        shapes, weights = self._shapes(folder), self._weights()
        self._require_model(shapes, weights, folder, "resume")
        self._require_optimizer(saved, layout, folder)
        wanted = self._wanted_optimizer(saved, weights, shapes)
        states = weights | {_RESTORED: wanted.state} | self._wanted_random(layout)
        loaded = self._read(states, folder)
        self._put_weights(loaded)
        self._put_optimizer(loaded.get(_RESTORED), wanted, common, saved, folder)
        self._put_counts(common)
        self._put_random(loaded.get(_RANDOM))

    def _wanted_optimizer(
        self, saved: OptimizerFacts, weights: dict[str, Any], shapes: Mapping[str, Shape]
    ) -> WantedShards:
        if not saved.started:
            return WantedShards(state={}, weights={})
        return optimizer_state.shards_to_load(self.optimizer, weights, saved, shapes.keys())

    def _wanted_random(self, layout: Mapping[str, Any]) -> dict[str, Any]:
        return {_RANDOM: self._random_shard(None)} if layout == self._layout() else {}

    def _put_optimizer(
        self, loaded: Any, wanted: WantedShards, common: dict[str, Any], saved: OptimizerFacts, folder: Path
    ) -> None:
        if not saved.started:
            self.optimizer.reload_model_params()
            return
        weights = self._read({_LATER: wanted.weights}, folder)[_LATER] if wanted.weights else {}
        optimizer_state.restore(self.optimizer, wanted.together(loaded, weights), common["optimizer"], saved)

    def _put_counts(self, common: dict[str, Any]) -> None:
        for name, value in common["progress"].items():
            setattr(self.progress, name, value)
        self.scheduler.load_state_dict(common["schedule"])

    def _put_weights(self, loaded: dict[str, Any]) -> None:
        for name, chunk in self._named_chunks():
            chunk.module.load_state_dict(loaded[name])

    def _put_random(self, states: dict[str, Any] | None) -> None:
        if states is not None:
            random_states.restore(states, self._device)
            return
        if self.context.is_main:
            _log.warning("another layout of ranks saved this: generators are seeded anew, so dropout is another one")
        parallel.seed_everything(self.seed + self.progress.step)

    def _weights(self) -> dict[str, Any]:
        return {name: chunk.module.sharded_state_dict() for name, chunk in self._named_chunks()}

    def _named_chunks(self) -> Iterator[tuple[str, Any]]:
        if len(self.chunks) == 1:
            yield "model", self.chunks[0]
            return
        for number, chunk in enumerate(self.chunks):
            yield f"model{number}", chunk

    def _random_shard(self, states: dict[str, Any] | None) -> ShardedObject:
        return ShardedObject(_RANDOM, states, (self.context.world_size,), (self.context.rank,))

    def _layout(self) -> dict[str, Any]:
        sizes = {name: getattr(self.config.transformer, name) for name in LAYOUT_WORDS}
        return {"world_size": self.context.world_size, "order": self.config.parallel.order, **sizes}

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.chunks[0].parameters()).device
        return device

    def _shapes(self, folder: Path) -> dict[str, Shape]:
        return _read_by_all(self.ranks, folder, lambda: read_shapes(folder))

    def _require_model(self, saved: Mapping[str, Shape], weights: dict[str, Any], folder: Path, key: str) -> None:
        wanted = {name: shape for part in self.ranks.gathered(_shapes_of(weights)) for name, shape in part.items()}
        raise_all(model_problems(saved, wanted, folder, key))

    def _require_optimizer(self, saved: OptimizerFacts, layout: dict[str, Any], folder: Path) -> None:
        mine = optimizer_state.facts_of(self.optimizer, self.config.checkpoint.optimizer_format)
        raise_all(optimizer_problems(saved, mine, (layout, self._layout()), folder))

    def _read(self, wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
        parallel_load = self.config.checkpoint.fully_parallel_load
        return _read_by_all(self.ranks, folder, lambda: read(wanted, folder, fully_parallel=parallel_load))


def _facts(common: dict[str, Any], folder: Path) -> tuple[dict[str, Any], OptimizerFacts]:
    """Return the layout that saved a checkpoint, and how it saved its optimizer."""
    facts = common.get(_FACTS)
    if not isinstance(facts, dict):
        what = "the checkpoint does not say how it was saved, so only its weights can be used"
        hint = f"start a new run from them: init_from={folder} run.name=NAME"
        raise UserError(Problem(key="resume", what=what, where=str(folder), hint=hint))
    return facts["layout"], OptimizerFacts(**facts["optimizer"])


def part_of(state: dict[str, Any], rank: int) -> StatePart:
    """Return how much a rank has to write of a state to save: its main replicas, whichever ranks write them."""
    mine = [shard for shard in _shards(state) if shard.data is not None and is_main_replica(shard.replica_id)]
    size = sum(shard.data.numel() * shard.data.element_size() for shard in mine)
    return StatePart(name=str(rank), tensor_bytes=size, tensors=len(mine))


def _shapes_of(weights: dict[str, Any]) -> dict[str, Shape]:
    return {shard.key: tuple(shard.global_shape) for shard in _shards(weights)}


def _shards(state: dict[str, Any]) -> Iterator[ShardedTensor]:
    for value in nested_values(state):
        built = nested_values(value.build()) if isinstance(value, ShardedTensorFactory) else [value]
        yield from (shard for shard in built if isinstance(shard, ShardedTensor))


def _read_by_all(ranks: Ranks, folder: Path, reading: Callable[[], Value]) -> Value:
    value, failure = ranks.all_succeed(reading)
    if failure is not None or value is None:
        hint = "name another checkpoint; a run that is resumed takes the one before when this folder is moved away"
        raise HostError(Problem(what=f"the checkpoint cannot be read: {failure}", where=str(folder), hint=hint))
    return value
