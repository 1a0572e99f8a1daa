"""What Megatron cannot split of a neutral model over ranks. Pure; heads and experts are the layout's own checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from primus_hydra.config.architecture import LATENT
from primus_hydra.config.layout import Layout
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.errors import Problem


def split_problems(
    model: ModelConfig, parallel: ParallelConfig, *, vocab_size: int | None, seq_length: int, local: bool
) -> list[Problem]:
    """Return why the weights and sequences of a model cannot be cut by `parallel`; `local` is the kind of layers.

    `vocab_size` is the number of embedding rows, None where it is not known (which is reported elsewhere).
    """
    rows = model.vocab_size or vocab_size
    return [
        *_width_problems(model, parallel, rows, local=local),
        *_sequence_problems(parallel, seq_length),
        *_expert_problems(model, parallel),
    ]


def group_problems(model: ModelConfig, parallel: ParallelConfig, layout: Layout) -> Iterator[Problem]:
    """Say why experts and their shards do not fit on the ranks of one pipeline stage."""
    ranks = layout.tp * layout.cp * layout.dp
    wanted = parallel.ep * parallel.etp
    if model.is_moe and ranks % wanted:
        what = f"ep*etp = {wanted} does not divide tp*cp*dp = {ranks}, the ranks of a pipeline stage"
        near = [size for size in range(1, ranks + 1) if ranks % (size * parallel.etp) == 0]
        hint = f"with etp={parallel.etp}, ep can be {', '.join(map(str, near))}" if near else "set parallel.etp=1"
        yield Problem(key="parallel.ep", what=what, hint=hint)


def _width_problems(
    model: ModelConfig, parallel: ParallelConfig, vocab_size: int | None, *, local: bool
) -> Iterator[Problem]:
    widths = {key: width for key, width in _tensor_widths(model, vocab_size, local=local).items() if width is not None}
    uneven = {key: width for key, width in widths.items() if width % parallel.tp}
    for key, width in uneven.items():
        what = f"{parallel.tp} ranks do not divide {key} {width}; shards must be equal"
        yield Problem(key="parallel.tp", what=what, hint=_tensor_hint(model, widths, parallel.tp))
    if model.is_moe and model.expert_width % parallel.etp:
        what = f"{parallel.etp} ranks do not divide the width of an expert, {model.expert_width}"
        yield Problem(key="parallel.etp", what=what, hint="set parallel.etp=1, which keeps experts whole")


def _tensor_widths(model: ModelConfig, vocab_size: int | None, *, local: bool) -> Mapping[str, int | None]:
    """Return what tensor parallel ranks cut, beside the heads."""
    dense = model.moe_layers < model.num_hidden_layers
    shared = (model.n_shared_experts or 0) * (model.moe_intermediate_size or 0)
    widths = {
        "model.vocab_size": vocab_size,
        "model.intermediate_size": model.intermediate_size if dense else None,
        "n_shared_experts * moe_intermediate_size": shared or None,
    }
    if local and model.architecture in LATENT:
        # Local layers cut the projections into the latent as well; Transformer Engine's are whole on every rank.
        latent = (model.kv_lora_rank or 0) + (model.qk_rope_head_dim or 0)
        widths |= {"model.q_lora_rank": model.q_lora_rank, "kv_lora_rank + qk_rope_head_dim": latent or None}
    return widths


def _tensor_hint(model: ModelConfig, widths: Mapping[str, int], tp: int) -> str:
    sizes = [model.num_attention_heads, model.kv_heads, *widths.values()]
    fit = [size for size in range(1, model.kv_heads + 1) if all(width % size == 0 for width in sizes)]
    near = sorted(sorted(fit, key=lambda size: abs(size - tp))[:3])
    return f"parallel.tp can be {' or '.join(map(str, near))} here"


def _sequence_problems(parallel: ParallelConfig, seq_length: int) -> Iterator[Problem]:
    splits = parallel.sequence_parallel and parallel.tp > 1
    pieces = (parallel.tp if splits else 1) * (2 * parallel.cp if parallel.cp > 1 else 1)
    if splits and seq_length % pieces:
        near = max(1, seq_length // pieces) * pieces
        yield Problem(
            key="training.seq_length",
            what=f"{seq_length} is not a multiple of {pieces}, the pieces that tp and cp cut a sequence into",
            hint=f"use {near}, or parallel.sequence_parallel=false",
        )


def _expert_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    if not model.is_moe:
        if parallel.etp > 1:
            what = f"{model.name} has no experts to split"
            yield Problem(key="parallel.etp", what=what, hint="set parallel.etp=1")
    elif parallel.tp > 1 and not parallel.sequence_parallel:
        what = "Megatron trains experts under tensor parallelism only with sequence parallelism"
        yield Problem(key="parallel.sequence_parallel", what=what, hint="set it to true, or parallel.tp=1")
