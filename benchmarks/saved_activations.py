"""Count the bytes that a layer's forward keeps for the backward, and hold the plan's formula against them.

    python benchmarks/saved_activations.py                # print the grid and the errors
    python benchmarks/saved_activations.py --write docs/saved_activations.md

Counted with saved-tensor hooks on a processor: one more layer's storages, without parameters and buffers; what
torchtitan's selective recomputation keeps beside autograd is read from its own storage.
"""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from primus_hydra.config.build import build, build_job, defaults_of
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.plan.activations import layer_kept
from primus_hydra.plan.setting import Setting, setting_of

VOCABULARY = 128
GROUPED: dict[str, Any] = {
    "name": "grid", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "vocab_size": VOCABULARY,
}  # fmt: skip
LATENT: dict[str, Any] = {
    **GROUPED, "architecture": "deepseek_v2", "num_key_value_heads": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1,
}  # fmt: skip
MODELS = {"llama": GROUPED, "qwen3": {**GROUPED, "architecture": "qwen3"}, "deepseek_v2": LATENT}
SHAPES = ((2, 64), (1, 128))
MODES = ("none", "selective", "full")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One cell of the grid: bytes of one layer and microbatch, counted in the program and by the formula."""

    backend: str
    model: str
    compute: str
    mode: str
    shape: tuple[int, int]
    seen: int
    counted: float

    @property
    def error(self) -> float:
        """Formula over program, less one."""
        return self.counted / self.seen - 1


def grid(backend: str) -> Iterator[Measured]:
    """Measure every cell of a backend; Megatron's mixtures need a GPU's streams, and are left out."""
    layer = titan_layer if backend == "torchtitan" else megatron_layer
    for name in MODELS if backend == "torchtitan" else ("llama", "qwen3"):
        for compute in ("bfloat16", "float32"):
            if name == "deepseek_v2" and compute == "float32":
                continue  # its experts compute in bfloat16 whatever the model does
            for mode in MODES:
                for shape in SHAPES:
                    setting = _setting(backend, name, compute, mode, shape)
                    yield Measured(
                        backend=backend, model=name, compute=compute, mode=mode, shape=shape,
                        seen=layer(name, compute, mode, shape),
                        counted=layer_kept(setting, setting.model.routes(2)).saved,
                    )  # fmt: skip


def _model(name: str, layers: int) -> ModelConfig:
    model, problems = build(ModelConfig, {**MODELS[name], "num_hidden_layers": layers})
    assert model is not None, problems
    return model


def _setting(backend: str, name: str, compute: str, mode: str, shape: tuple[int, int]) -> Setting:
    job = _job(backend, name, 3, compute, mode, shape)
    layout, problems = layout_of(job)
    assert layout is not None, problems
    return setting_of(job, layout, VOCABULARY)


def _job(backend: str, name: str, layers: int, compute: str, mode: str, shape: tuple[int, int]) -> JobConfig:
    adapter = {"torchtitan": "TorchTitanAdapter", "megatron": "MegatronAdapter"}[backend]
    tree = defaults_of(JobConfig)
    tree["model"] |= {**MODELS[name], "num_hidden_layers": layers}
    tree["training"] |= {"micro_batch_size": shape[0], "global_batch_size": shape[0], "seq_length": shape[1]}
    tree["precision"] |= {"compute": compute}
    tree["recompute"] |= {"mode": mode}
    tree["platform"] |= {"name": "cpu", "vendor": "cpu"}
    tree["backend"] |= {"_target_": f"primus_hydra.backends.{backend}.adapter.{adapter}", "name": backend}
    tree["task"] = {"_target_": "primus_hydra.tasks.train.Train"}
    job, problems = build_job(tree)
    assert job is not None, problems
    return job


class _Kept:
    """Storages that autograd keeps, each once."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
        self._seen: dict[int, torch.Tensor] = {}

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in self._own:
            self._seen.setdefault(pointer, tensor)
        return tensor

    @property
    def total(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self._seen.values())


def _one_more(measure: Any) -> int:
    """Return what a third layer adds to two."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return int(measure(3) - measure(2))


def titan_layer(name: str, compute: str, mode: str, shape: tuple[int, int]) -> int:
    """Return the bytes that one layer of torchtitan's keeps."""
    return _one_more(lambda layers: _titan(_model(name, layers), compute, mode, shape))


def _titan(neutral: ModelConfig, compute: str, mode: str, shape: tuple[int, int]) -> int:
    import torchtitan.distributed.activation_checkpoint as recomputing
    from torchtitan.config.override import OverrideConfig, apply_overrides

    from primus_hydra.backends.torchtitan.cpu_attention import create_block_mask_on_cpu
    from primus_hydra.backends.torchtitan.models.spec import model_spec
    from primus_hydra.patches.torchtitan.attention import CPU_ATTENTION

    batch, length = shape
    spec = model_spec(neutral, vocab_size=VOCABULARY, seq_length=length, global_batch_size=8)
    apply_overrides(OverrideConfig(imports=[CPU_ATTENTION]), spec.model)
    model = spec.model.build()
    with torch.no_grad():
        model.init_weights()
    model = model.to(getattr(torch, compute))
    for module in model.modules():
        if hasattr(module, "cache"):
            module._init_self_buffers()  # the angles stay in their own format
    stores: list[Any] = []
    with _stores_noted(recomputing, stores):
        if mode != "none":
            policy = recomputing.FullAC if mode == "full" else recomputing.SelectiveAC
            policy.Config().build().apply(model)
        kept, tokens = _Kept(model), torch.randint(0, VOCABULARY, shape)
        mask = create_block_mask_on_cpu(lambda b, h, q, k: q >= k, batch, None, length, length)
        with torch.autograd.graph.saved_tensors_hooks(kept.note, lambda tensor: tensor):
            result = model(tokens, positions=torch.arange(length).expand(shape), attention_masks=mask)
    for store in stores:
        for outputs in store.values():
            for output in outputs.values():
                _note_all(kept, output)
    del result
    return kept.total


@contextlib.contextmanager
def _stores_noted(recomputing: Any, stores: list[Any]) -> Iterator[None]:
    make = recomputing.create_selective_checkpoint_contexts

    def noting(*args: Any, **named: Any) -> Any:
        contexts = make(*args, **named)
        stores.append(contexts[0].storage)
        return contexts

    recomputing.create_selective_checkpoint_contexts = noting
    try:
        yield
    finally:
        recomputing.create_selective_checkpoint_contexts = make


def _note_all(kept: _Kept, value: Any) -> None:
    value = getattr(value, "val", value)
    if isinstance(value, (list, tuple)):
        for item in value:
            _note_all(kept, item)
    elif isinstance(value, torch.Tensor):
        kept.note(value)


def megatron_layer(name: str, compute: str, mode: str, shape: tuple[int, int]) -> int:
    """Return the bytes that one of Megatron's local layers keeps; needs its parallel groups, see `one_rank`."""
    return _one_more(lambda layers: _megatron(_job("megatron", name, layers, compute, mode, shape), shape))


def _megatron(job: JobConfig, shape: tuple[int, int]) -> int:
    from primus_hydra.backends.megatron.layer_spec import spec_for
    from primus_hydra.backends.megatron.native import core_config
    from primus_hydra.backends.megatron.sections import Stage

    length = shape[1]
    with _without_gpu():
        config = core_config(job, _context(job))
        spec = spec_for(config.transformer, config.model, None)
        model = config.model.build(config.transformer, spec, Stage(pre_process=True, post_process=True))
        model.train()
        kept, tokens = _Kept(model), torch.randint(0, VOCABULARY, shape)
        mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)
        with torch.autograd.graph.saved_tensors_hooks(kept.note, lambda tensor: tensor):
            result = model(tokens, torch.arange(length).expand(shape), mask, labels=tokens)
    del result
    return kept.total


@contextlib.contextmanager
def _without_gpu() -> Iterator[None]:
    """Answer for the GPU that Megatron asks, and take the answers back."""
    from megatron.core.tensor_parallel import random

    answers = (
        (torch.cuda, "current_device", lambda: torch.device("cpu")),
        (random, "_get_cuda_rng_state", lambda *_, **__: torch.get_rng_state()),
        (random, "_set_cuda_rng_state", lambda *_, **__: None),
        (random.CudaRNGStatesTracker, "fork", lambda *_, **__: contextlib.nullcontext()),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in answers]
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _context(job: JobConfig) -> Any:
    from primus_hydra.data.prepared import PreparedData
    from primus_hydra.run.paths import RunPaths
    from primus_hydra.runtime.contracts import RankContext

    layout, _ = layout_of(job)
    assert layout is not None
    data = PreparedData(
        vocab_size=VOCABULARY, corpus_hash=None, tokens_dir=None, tokenizer_dir=None, documents=0, train_tokens=0,
        validation_tokens=0,
    )  # fmt: skip
    nobody: Any = type("Nobody", (), {"agreed": staticmethod(lambda step: False)})()
    return RankContext(
        rank=0, local_rank=0, world_size=1, local_world_size=1, attempt=1, restart=0, paths=RunPaths(Path("nowhere")),
        layout=layout, data=data, resume_from=None, backend_version="", metrics=nobody, stop=nobody, ledger=nobody,
    )  # fmt: skip


@contextlib.contextmanager
def one_rank() -> Iterator[None]:
    """The parallel groups of a single process, for Megatron."""
    from megatron.core import parallel_state

    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    try:
        yield
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def table_lines(cells: list[Measured]) -> list[str]:
    """Return the grid as a table in Markdown."""
    lines = ["| backend | model | computes in | recompute | batch x tokens | program, bytes | formula | error |",
             "| --- | --- | --- | --- | --- | ---: | ---: | ---: |"]  # fmt: skip
    for cell in cells:
        shape = f"{cell.shape[0]} x {cell.shape[1]}"
        lines.append(
            f"| {cell.backend} | {cell.model} | {cell.compute} | {cell.mode} | {shape} | {cell.seen:,} | "
            f"{cell.counted:,.0f} | {cell.error:+.2%} |"
        )
    return lines


def page(cells: list[Measured]) -> str:
    """Return the page of the documentation."""
    worst = max(abs(cell.error) for cell in cells)
    return "\n\n".join([
        "# Saved activations, counted",
        "Made by `benchmarks/saved_activations.py`; do not edit. Bytes that one layer's forward keeps for one "
        "microbatch on a processor, in the program and by the plan's formula (`primus_hydra/plan/activations.py`). "
        "GPUs run kernels that keep other tensors; their formula is derived from the papers that it cites, and not "
        "counted here.",
        f"The largest error of {len(cells)} cells is {worst:.2%}.",
        "\n".join(table_lines(cells)),
    ]) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the page of the documentation to this file")
    options = parser.parse_args()
    cells = list(grid("torchtitan"))
    with one_rank():
        cells += grid("megatron")
    if options.write is not None:
        options.write.write_text(page(cells), encoding="utf-8")
    else:
        print("\n".join(table_lines(cells)))


if __name__ == "__main__":
    main()
