"""A Hugging Face data set that lies on disk: a `save_to_disk` folder, or a folder of parquet, arrow or jsonl files.

The `datasets` library (an optional dependency) resolves splits and files. Nothing is copied into its
cache and nothing is downloaded: a name on the Hub is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.schema import DataConfig
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.data.file_list import expand_home
from primus_hydra.data.file_readers import key_hint, read_jsonl, read_parquet
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.data.source import WHOLE, Source, Window
from primus_hydra.errors import Problem, UserError, raise_all

_SHARDS: Final = 64
_BATCH: Final = 256
_ENDINGS: Final = (".parquet", ".arrow", ".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst")
_PROBLEMS_SHOWN: Final = 20


@dataclass(frozen=True, kw_only=True)
class HfFiles:
    """One split of a data set on disk: sources to read, and the files that hold its bytes."""

    sources: tuple[Source, ...]
    files: tuple[Path, ...]


def check_hf(data: DataConfig) -> list[Problem]:
    """Look at the folder's own description, without importing `datasets`."""
    if not isinstance(data.path, str):
        return [Problem(key="data.path", what="needs the folder of one data set", hint="set data.path=FOLDER")]
    folder = Path(expand_home(data.path))
    if not folder.is_dir():
        hint = f"fetch it first: hf download --repo-type dataset {data.path} --local-dir FOLDER"
        return [Problem(key="data.path", what=f"{data.path}: there is no such folder", hint=hint)]
    described = _described(folder, data.split)
    if isinstance(described, Problem):
        return [described]
    columns = _columns(described)
    if columns is not None and data.text_key not in columns:
        return [_no_column(folder, data.text_key, columns)]
    return []


def open_hf(data: DataConfig) -> HfFiles:
    """Open one split for reading; raises UserError with what `datasets` says when it cannot."""
    folder = Path(expand_home(str(data.path))).absolute()
    try:
        return _open_saved(folder, data) if _is_saved(folder) else _open_plain(folder, data)
    except UserError:
        raise
    except Exception as error:  # the library raises many kinds, and all of them speak of the user's folder
        what = f"{folder}: not a data set that can be read: {error}"
        raise UserError(Problem(key="data.path", what=what)) from error


def _is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _described(folder: Path, split: str) -> Path | Problem:
    """Return the folder that holds `split`, or what stands against it."""
    table = folder / "dataset_dict.json"
    if table.is_file():
        splits: list[str] = json.loads(table.read_text())["splits"]
        return folder / split if split in splits else _no_split(folder, split, splits)
    if (folder / "dataset_info.json").is_file() or any(
        f.name.endswith(_ENDINGS) for f in folder.rglob("*") if f.is_file()
    ):
        return folder
    return Problem(key="data.path", what=f"{folder}: holds no data set", hint=f"looked for {', '.join(_ENDINGS)}")


def _no_split(folder: Path, split: str, splits: list[str]) -> Problem:
    hint = f"it has: {', '.join(splits)}; {did_you_mean(split, splits) or 'set data.split'}"
    return Problem(key="data.split", what=f"{folder} has no split {split!r}", hint=hint)


def _columns(folder: Path) -> list[str] | None:
    info = folder / "dataset_info.json"
    if not info.is_file() or not (folder / "state.json").is_file():
        return None
    features = json.loads(info.read_text()).get("features")
    return list(features) if isinstance(features, dict) else None


def _open_saved(folder: Path, data: DataConfig) -> HfFiles:
    """Open a `save_to_disk` folder, cut into contiguous parts so that text can be taken from all over it."""
    import datasets

    saved = datasets.load_from_disk(str(folder))
    table = saved[data.split] if isinstance(saved, datasets.DatasetDict) else saved
    if data.text_key not in table.column_names:
        raise UserError(_no_column(folder, data.text_key, table.column_names))
    count = max(1, min(_SHARDS, table.num_rows))
    shards = [table.shard(num_shards=count, index=index, contiguous=True) for index in range(count)]
    sources = tuple(_table_source(shard, data.text_key, str(folder)) for shard in shards)
    return HfFiles(sources=sources, files=tuple(Path(entry["filename"]) for entry in table.cache_files))


def _open_plain(folder: Path, data: DataConfig) -> HfFiles:
    """Open a folder of files, whose splits `datasets` tells by their names or by the folder's card.

    The files are read by our own readers: streaming through the library would import torch into the launcher.
    """
    import datasets

    datasets.disable_progress_bars()
    by_split = datasets.load_dataset_builder(str(folder)).config.data_files or {}
    if data.split not in by_split:
        raise UserError(_no_split(folder, data.split, [str(name) for name in by_split]))
    files = tuple(Path(name) for name in by_split[data.split])
    unknown = [Problem(key="data.path", what=f"{file}: unknown extension") for file in files if not _known(file)]
    raise_all(unknown[:_PROBLEMS_SHOWN])
    return HfFiles(sources=tuple(_file_source(file, data.text_key) for file in files), files=files)


def _known(file: Path) -> bool:
    return file.name.endswith(_ENDINGS)


def _file_source(file: Path, text_key: str) -> Source:
    import datasets

    if file.name.endswith(".arrow"):
        table = datasets.Dataset.from_file(str(file))
        if text_key not in table.column_names:
            raise UserError(_no_column(file, text_key, table.column_names))
        return _table_source(table, text_key, str(file))
    read = read_parquet if file.name.endswith(".parquet") else read_jsonl
    return Source(name=str(file), read=partial(read, file, text_key), file=file, size=file.stat().st_size)


def _table_source(table: Any, text_key: str, name: str) -> Source:
    return Source(
        name=name, read=partial(_rows, table.select_columns([text_key]), text_key, name), size=int(table.data.nbytes)
    )


def _no_column(where: Path, text_key: str, columns: list[str]) -> Problem:
    what = f"{where} has no column {text_key!r}"
    return Problem(key="data.text_key", what=what, hint=key_hint(text_key, columns))


def _rows(shard: Any, text_key: str, name: str, log: ProblemLog, *, window: Window = WHOLE) -> Iterator[str]:
    if window != WHOLE:
        raise ValueError("a shard of a table is read whole")
    try:
        for batch in shard.iter(batch_size=_BATCH):
            texts = [text for text in batch[text_key] if text is not None]
            if not all(isinstance(text, str) for text in texts):
                log.add(f"column {text_key!r} holds {type(texts[0]).__name__}, not text", where=name)
                return
            yield from texts
    except Exception as error:  # as in open_hf: whatever the library raises is about the user's files
        log.add(f"cannot be read: {error}", where=name)
