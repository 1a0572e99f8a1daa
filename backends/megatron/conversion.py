"""Megatron's distributed checkpoints for `task=convert`: which tensors there are, and what its own model makes of them.

The model of one rank is built without memory, and Megatron itself says which part of which tensor each of its weights
is. Checkpoints do not depend on the layout of ranks, nor on whose layers the model is made of.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
import torch.distributed
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.core import CheckpointingConfig, save_config
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, ShardedTensorFactory

from primus_hydra.backends.megatron.checkpoint_files import read
from primus_hydra.backends.megatron.hf_names import holdings
from primus_hydra.backends.megatron.layer_spec import spec_for
from primus_hydra.backends.megatron.masks import causal_mask
from primus_hydra.backends.megatron.models.limits import model_problems
from primus_hydra.backends.megatron.models.transformer import gpt_fields, model_fields
from primus_hydra.backends.megatron.parallel import seed_everything
from primus_hydra.backends.megatron.quiet import without_notices_of_defaults
from primus_hydra.backends.megatron.sections import GptModel, Stage
from primus_hydra.backends.megatron.versions import installed_version
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.convert.contract import NativeFormat
from primus_hydra.convert.layout import NativeLayout, StoredPart
from primus_hydra.errors import raise_all
from primus_hydra.patching import PatchContext, run_patches
from primus_hydra.weights.pieces import Piece

_COMMON: Final = "common.pt"
_VERSION: Final = 3.0
"""Of what a checkpoint holds, in upstream's words (`checkpoint_version`)."""
_LAYERS_APART: Final = {"non_homogeneous_layers": True}


class MegatronFormat(NativeFormat):
    """Checkpoints of megatron-core, ours and upstream's; an optimizer beside the weights is passed over."""

    backend: ClassVar[str] = "megatron"
    embedding: ClassVar[str] = "embedding.word_embeddings.weight"
    _ready: ClassVar[bool] = False

    def layout(self, vocab_size: int, saved: Collection[str] | None = None) -> NativeLayout:
        """Return the layout: with one tensor for all layers, or, where `saved` says so, with one for each."""
        with torch.device("meta"):
            chunk = self._built(vocab_size, values=False)
        state = chunk.sharded_state_dict()
        if saved is not None and not _keys(state) <= set(saved):
            apart = chunk.sharded_state_dict(metadata=dict(_LAYERS_APART))
            state = apart if _keys(apart) <= set(saved) else state
        pieces = {each.name: each.pieces for each in holdings([chunk], self.job.model, vocab_size)}
        parts = [part for name, entry in state.items() for part in _parts(entry, pieces.get(name, ()))]
        objects = {each.unique_key: _as_bytes(each) for each in nested_values(state) if isinstance(each, ShardedObject)}
        shapes = {shard.key: tuple(shard.global_shape) for entry in state.values() for shard in _shards(entry)}
        return NativeLayout(parts=parts, shapes=shapes, objects=objects)

    def finish(self, folder: Path) -> None:
        """Write the format, and what Megatron keeps once for all ranks."""
        save_config(CheckpointingConfig("torch_dist"), str(folder))
        torch.save({"checkpoint_version": _VERSION, "iteration": 0}, folder / _COMMON)

    @torch.no_grad()
    def logits(self, folder: Path, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
        """Return the logits of a model of local layers."""
        chunk = self._built(vocab_size, values=True)
        state = chunk.sharded_state_dict()
        chunk.load_state_dict(read({"model": state}, folder, fully_parallel=False)["model"])
        length = tokens.shape[1]
        positions = torch.arange(length).expand_as(tokens)
        found: torch.Tensor = chunk.eval()(tokens, positions, causal_mask(length))
        return found.float()

    def _built(self, vocab_size: int, *, values: bool) -> Any:
        """Build the whole model; its weights have values, or it is for its names and shapes alone."""
        raise_all(model_problems(self.job.model))
        self._prepare()
        parallel = ParallelConfig()
        kind, fields = model_fields(self.job.model, parallel, engine=False)
        with without_notices_of_defaults():
            transformer = kind(
                **fields,
                transformer_impl="local",
                use_cpu_initialization=True,
                perform_initialization=values,
                params_dtype=torch.float32,
                bias_activation_fusion=False,
                bias_dropout_fusion=False,
                apply_rope_fusion=False,
            )
        model = GptModel(**gpt_fields(self.job.model, vocab_size=vocab_size))
        return model.build(transformer, spec_for(transformer, model, None), Stage(pre_process=True, post_process=True))

    def _prepare(self) -> None:
        """Make the groups of one rank, which Megatron's modules ask for, and apply what its models need here."""
        if MegatronFormat._ready:
            return
        MegatronFormat._ready = True
        version = installed_version("megatron-core")
        run_patches("build_args", PatchContext(job=self.job, backend=self.job.backend.name, backend_version=version))
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        seed_everything(self.job.training.seed)


def _keys(state: dict[str, Any]) -> set[str]:
    return {shard.key for entry in state.values() for shard in _shards(entry)}


def _shards(entry: Any) -> Iterator[ShardedTensor]:
    built = nested_values(entry.build()) if isinstance(entry, ShardedTensorFactory) else [entry]
    yield from (shard for shard in built if isinstance(shard, ShardedTensor))


def _parts(entry: Any, pieces: tuple[Piece, ...]) -> Iterator[StoredPart]:
    """Yield a weight's parts: one, or, where Megatron cuts it into equal ones, one for each of its pieces."""
    shards = list(_shards(entry))
    if len(shards) == 1:
        yield _part(shards[0], pieces)
    else:
        yield from (_part(shard, (piece,)) for shard, piece in zip(shards, pieces, strict=True))


def _part(shard: ShardedTensor, pieces: tuple[Piece, ...]) -> StoredPart:
    shape = (1,) * shard.prepend_axis_num + tuple(shard.local_shape)
    return StoredPart(key=shard.key, offset=tuple(shard.global_offset), shape=shape, pieces=pieces)


def _as_bytes(entry: ShardedObject) -> bytes:
    """Return an object as Megatron keeps it: a list, of the shards of one rank."""
    buffer = io.BytesIO()
    torch.save([entry.data], buffer)
    return buffer.getvalue()
