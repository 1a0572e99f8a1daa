"""A folder that `transformers` loads: how the tensors are spread over files, and everything beside the tensors.

Written as NAME.partial and renamed at the end, so that a folder of the final name is whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, Literal

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.data.tokenizer import load_tokenizer
from primus_hydra.weights.folder import CONFIG_FILE, INDEX_FILE, SINGLE_FILE
from primus_hydra.weights.hf_config import hf_config
from primus_hydra.weights.tensors import Shape, expected_tensors, stays_float32

ExportDtype = Literal["float32", "bfloat16", "float16"]

LARGEST_FILE: Final = 5_000_000_000
"""Bytes of tensors in one file at most, unless one tensor alone has more; what `transformers` takes by default."""
_BYTES: Final[Mapping[str, int]] = {"float32": 4, "bfloat16": 2, "float16": 2}
_GENERATION_FILE: Final = "generation_config.json"


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """Which file holds which tensors, in order; `total_bytes` counts the tensors of all files."""

    files: Mapping[str, tuple[str, ...]]
    total_bytes: int

    @property
    def single(self) -> bool:
        """Whether one file holds everything, so that there is no index."""
        return len(self.files) == 1

    def index(self) -> dict[str, Any]:
        """Return the index of several files."""
        places = {name: file for file, names in self.files.items() for name in names}
        return {"metadata": {"total_size": self.total_bytes}, "weight_map": places}


def plan_files(shapes: Mapping[str, Shape], dtype: ExportDtype, *, largest: int = LARGEST_FILE) -> FilePlan:
    """Spread tensors over files of at most `largest` bytes each, in order."""
    sizes = {name: _BYTES["float32" if stays_float32(name) else dtype] * prod(shape) for name, shape in shapes.items()}
    return spread(sizes, largest)


def spread(sizes: Mapping[str, int], largest: int) -> FilePlan:
    """Spread tensors, given by their bytes, over files of at most `largest` bytes each, in order."""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if groups[-1] and filled + size > largest:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    total = sum(sizes.values())
    if len(groups) == 1:
        return FilePlan(files={SINGLE_FILE: tuple(groups[0])}, total_bytes=total)
    named = {f"model-{n:05}-of-{len(groups):05}.safetensors": tuple(names) for n, names in enumerate(groups, 1)}
    return FilePlan(files=named, total_bytes=total)


def plan_export(model: ModelConfig, vocab_size: int, dtype: ExportDtype) -> FilePlan:
    """Return the files of an exported model with `vocab_size` rows; raises KeyError for a family that is not known."""
    return plan_files(expected_tensors(model, vocab_size), dtype)


def partial_folder(folder: Path) -> Path:
    """Return where an export is written before it is whole."""
    return folder.with_name(f"{folder.name}.partial")


def start_export(folder: Path) -> Path:
    """Make the folder to write into, empty; one process calls it. Returns that folder."""
    partial = partial_folder(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def finish_export(
    folder: Path, plan: FilePlan, *, model: ModelConfig, vocab_size: int, dtype: ExportDtype, tokenizer_dir: str | None
) -> None:
    """Write what stands beside the tensors and give the folder its final name; an older export is replaced.

    One process calls it, once all files of the plan are in the folder.
    """
    partial = partial_folder(folder)
    write_beside(partial, plan, model=model, vocab_size=vocab_size, dtype=dtype, tokenizer_dir=tokenizer_dir)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def write_beside(
    folder: Path, plan: FilePlan, *, model: ModelConfig, vocab_size: int, dtype: ExportDtype, tokenizer_dir: str | None
) -> None:
    """Write everything that a folder holds beside its tensors."""
    bos_id, eos_id = _copy_tokenizer(tokenizer_dir, folder)
    config = hf_config(model, vocab_size=vocab_size, bos_id=bos_id, eos_id=eos_id, dtype=dtype)
    _write_json(folder / CONFIG_FILE, config)
    if not (folder / _GENERATION_FILE).is_file():
        ids = {"bos_token_id": bos_id, "eos_token_id": eos_id}
        present = {name: value for name, value in ids.items() if value is not None}
        _write_json(folder / _GENERATION_FILE, {"_from_model_config": True, **present})
    if not plan.single:
        _write_json(folder / INDEX_FILE, plan.index())


def _copy_tokenizer(tokenizer_dir: str | None, target: Path) -> tuple[int | None, int | None]:
    """Copy the tokenizer's files and return the ids of its begin and end tokens; random tokens have no tokenizer.

    Where a model lies beside the tokenizer, how it generates belongs to its tokens, and is copied too.
    """
    if tokenizer_dir is None:
        return None, None
    source = Path(tokenizer_dir)
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    tokenizer = load_tokenizer(source)
    return tokenizer.bos_id, tokenizer.eos_id


_TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    _GENERATION_FILE,
)
"""Files of a tokenizer in Hugging Face's layout; a folder may hold a model's weights beside them."""


def _write_json(path: Path, tree: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
