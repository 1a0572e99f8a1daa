"""What `data.path` names for `data=megatron` and `data=stream`: one set of tokens, or several blended by weight.

`[0.7,A,0.3,B]` gives weights, `[A,B]` leaves them to the number of tokens. A prefix is what stands before .bin
and .idx.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from primus_hydra.config.anchors import is_weight
from primus_hydra.config.suggest import nearest
from primus_hydra.data.file_list import expand_home
from primus_hydra.data.megatron_index import bin_file, index_file
from primus_hydra.errors import Problem

_KEY: Final = "data.path"
_SHAPE: Final = "write data.path=PREFIX, data.path=[A,B] or data.path=[0.7,A,0.3,B]"
_SUFFIXES: Final = (".bin", ".idx")


@dataclass(frozen=True, kw_only=True)
class BlendPart:
    """One prefix of a blend; `weight` is None where the user gave none."""

    prefix: Path
    weight: float | None = None


def read_blend(
    path: str | Sequence[str] | None,
    *,
    key: str = _KEY,
    needs: str = "the prefix of an indexed data set",
    shape: str = _SHAPE,
) -> tuple[list[BlendPart], list[Problem]]:
    """Read `data.path`; return its parts, or what is wrong with its shape and weights. Looks at no file.

    `key` is what was set, `needs` and `shape` say what it names, and how.
    """
    items = [path] if isinstance(path, str) else list(path or [])
    if not items:
        return [], [Problem(key=key, what=f"needs {needs}", hint=shape)]
    if not any(is_weight(item) for item in items):
        parts = [BlendPart(prefix=_prefix(item)) for item in items]
    elif len(items) % 2 or [is_weight(item) for item in items] != [True, False] * (len(items) // 2):
        what = f"weights and paths do not alternate: {', '.join(str(item) for item in items)}"
        return [], [Problem(key=key, what=what, hint=f"{shape}; a path that is a number is written ./7")]
    else:
        parts = [
            BlendPart(prefix=_prefix(prefix), weight=float(weight))
            for weight, prefix in zip(items[::2], items[1::2], strict=True)
        ]
    return parts, [*_weight_problems(parts, key), *_repeated(parts, key)]


def missing_files(prefix: Path) -> list[Problem]:
    """Return what is not there of PREFIX.bin and PREFIX.idx, with the prefixes of the folder that come nearest."""
    lacking = [file for file in (bin_file(prefix), index_file(prefix)) if not file.is_file()]
    if not lacking:
        return []
    if len(lacking) == 1:
        what = f"{lacking[0]}: there is no such file beside {_other(lacking[0])}"
        return [Problem(key=_KEY, what=what, hint="an indexed data set is both files; copy the missing one as well")]
    return [Problem(key=_KEY, what=f"{prefix}: there is no {prefix.name}.bin and .idx", hint=_near(prefix))]


def _prefix(item: str) -> Path:
    return Path(expand_home(item)).absolute()


def _weight_problems(parts: Sequence[BlendPart], key: str) -> Iterator[Problem]:
    for part in parts:
        if part.weight is not None and not 0 < part.weight < float("inf"):
            what = f"the weight of {part.prefix} is {part.weight:g}; it must be a positive number"
            yield Problem(key=key, what=what, hint="leave a data set that is not wanted out of the list")


def _repeated(parts: Sequence[BlendPart], key: str) -> Iterator[Problem]:
    prefixes = [part.prefix for part in parts]
    for prefix in dict.fromkeys(prefixes):
        if prefixes.count(prefix) > 1:
            what = f"{prefix} is named {prefixes.count(prefix)} times: its documents would come as often, side by side"
            yield Problem(key=key, what=what, hint="name it once, with the sum of its weights")


def _other(file: Path) -> str:
    return file.with_suffix(".idx" if file.suffix == ".bin" else ".bin").name


def _near(prefix: Path) -> str:
    if prefix.suffix in _SUFFIXES and prefix.with_suffix(".idx").is_file():
        return f"leave the ending out: {prefix.with_suffix('')}"
    if not prefix.parent.is_dir():
        return f"there is no folder {prefix.parent}"
    there = sorted(file.name.removesuffix(".idx") for file in prefix.parent.glob("*.idx"))
    if not there:
        return f"{prefix.parent} holds no indexed data set"
    near = nearest(prefix.name, there)
    if near:
        return f"did you mean {' or '.join(str(prefix.parent / name) for name in near)}?"
    return f"{prefix.parent} holds: {', '.join(there[:12])}"
