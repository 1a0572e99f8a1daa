"""A tokenizer as it lies in a folder (Hugging Face files): its ids, its vocabulary, its begin and end tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers

from primus_hydra.config.anchors import is_weight
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.content_hash import hash_file
from primus_hydra.data.file_list import expand_home
from primus_hydra.errors import Problem, UserError

TOKENIZER_FILE: Final = "tokenizer.json"
CONFIG_FILE: Final = "tokenizer_config.json"
PREPARED_FOLDER: Final = "tokenizer"
"""Where a folder that `task=data` has prepared holds its tokenizer."""
_SPECIAL_FILE: Final = "special_tokens_map.json"
_KEY: Final = "tokenizer.path"


@dataclass(frozen=True, kw_only=True)
class TextTokenizer:
    """Text to ids below `vocab_size`; `bos_id` and `eos_id` are None where the tokenizer has no such token."""

    folder: Path
    model: tokenizers.Tokenizer
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    content_hash: str

    def encode(self, texts: Sequence[str], *, bos: bool, eos: bool) -> Iterator[npt.NDArray[np.uint32]]:
        """Yield the ids of each document, with its begin and end tokens where asked for and there."""
        head = [self.bos_id] if bos and self.bos_id is not None else []
        tail = [self.eos_id] if eos and self.eos_id is not None else []
        for encoding in self.model.encode_batch_fast(list(texts), add_special_tokens=False):
            yield np.array([*head, *encoding.ids, *tail], dtype=np.uint32)


def tokenizer_vocab_size(job: JobConfig) -> int:
    """Return the size of the vocabulary that `job.tokenizer` has, without training it.

    Raises UserError when a tokenizer on disk cannot be read.
    """
    if job.tokenizer.kind == "bpe" and job.data.kind != "stream":
        return job.tokenizer.vocab_size
    return load_tokenizer(tokenizer_folder(job)).vocab_size


def tokenizer_folder(job: JobConfig) -> Path:
    """Return the folder of a tokenizer on disk; raises UserError if it is not one.

    Of prepared folders it is their own, unless one is named.
    """
    if job.data.kind == "stream" and job.tokenizer.kind == "bpe":
        return _prepared_tokenizer(job.data.path)
    return named_tokenizer_folder(job)


def named_tokenizer_folder(job: JobConfig) -> Path:
    """Return the folder that `tokenizer.path` names; raises UserError if it is not that of a tokenizer."""
    path = job.tokenizer.path
    if path is None:
        raise UserError(Problem(key=_KEY, what="needs the folder of a tokenizer", hint="set tokenizer.path=FOLDER"))
    folder = Path(expand_home(path)).absolute()
    folder = folder.parent if folder.name == TOKENIZER_FILE else folder
    if not folder.is_dir():
        raise UserError(
            Problem(key=_KEY, what=f"{path}: there is no such folder", hint=f"current folder: {Path.cwd()}")
        )
    if not (folder / TOKENIZER_FILE).is_file():
        hint = f"it holds: {', '.join(sorted(entry.name for entry in folder.iterdir())[:12]) or 'nothing'}"
        raise UserError(Problem(key=_KEY, what=f"{path}: there is no {TOKENIZER_FILE} in it", hint=hint))
    return folder


def _prepared_tokenizer(path: str | list[str] | None) -> Path:
    named = [path] if isinstance(path, str) else list(path or [])
    folders = [Path(expand_home(name)).absolute() / PREPARED_FOLDER for name in named if not is_weight(name)]
    if not folders or not (folders[0] / TOKENIZER_FILE).is_file():
        what = f"{named[-1]}: holds no tokenizer" if named else "needs the folder that task=data has prepared"
        raise UserError(Problem(key="data.path", what=what, hint="set data.path=FOLDER"))
    return folders[0]


def check_tokenizer(job: JobConfig) -> list[Problem]:
    """Return what stands against the tokenizer: unreadable, or too large for the model's embedding."""
    try:
        size = tokenizer_vocab_size(job)
    except UserError as error:
        return list(error.problems)
    rows = job.model.vocab_size
    if rows is None or size <= rows:
        return []
    what = f"{rows} rows cannot hold the {size} tokens of the tokenizer"
    return [Problem(key="model.vocab_size", what=what, hint="leave model.vocab_size=null, or use a smaller tokenizer")]


def load_tokenizer(folder: Path) -> TextTokenizer:
    """Read a tokenizer; raises UserError that says which file is wrong and why."""
    file = folder / TOKENIZER_FILE
    status = file.stat()
    return _load(folder, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4)
def _load(folder: Path, _size: int, _mtime_ns: int) -> TextTokenizer:
    file = folder / TOKENIZER_FILE
    try:
        model = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise UserError(Problem(key=_KEY, what=f"{file}: not a tokenizer that can be read: {error}")) from error
    # A file may carry settings of some earlier use, which would cut or pad documents.
    model.no_truncation()
    model.no_padding()
    ids = model.get_vocab(with_added_tokens=True)
    return TextTokenizer(
        folder=folder,
        model=model,
        vocab_size=max(ids.values(), default=-1) + 1,
        bos_id=_special_id(folder, "bos_token", ids),
        eos_id=_special_id(folder, "eos_token", ids),
        content_hash=hash_file(file),
    )


def _special_id(folder: Path, role: str, ids: dict[str, int]) -> int | None:
    for name in (CONFIG_FILE, _SPECIAL_FILE):
        token = _content(_read_json(folder / name).get(role))
        if token is None:
            continue
        if token not in ids:
            raise UserError(Problem(key=_KEY, what=f"{folder / name}: {role} {token!r} is not in the vocabulary"))
        return ids[token]
    return None


def _content(token: Any) -> str | None:
    """Return the text of a special token, which the files give as a string or as an object."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(Problem(key=_KEY, what=f"{path}: cannot be read as JSON: {error}")) from error
    return tree if isinstance(tree, dict) else {}
