"""Pieces out of a Hugging Face folder, read from its files as they are asked for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch
from safetensors import safe_open

from primus_hydra.convert.meter import Meter
from primus_hydra.weights.folder import HfFolder
from primus_hydra.weights.headers import TensorInfo
from primus_hydra.weights.pieces import Piece

FORMATS: Final[dict[torch.dtype, str]] = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float64: "F64",
}
"""Number formats of weights, in the words of safetensors."""
_DTYPES: Final = {word: dtype for dtype, word in FORMATS.items()}


class HfSource:
    """The tensors of a folder; use it as a context manager. Open files are mapped into memory, not read."""

    def __init__(self, found: HfFolder, meter: Meter) -> None:
        self._found = found
        self._meter = meter
        self._stack = ExitStack()
        self._files: dict[Path, Any] = {}

    def __enter__(self) -> HfSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.clear()
        self._stack.close()

    def dtype(self, tensor: str) -> torch.dtype:
        """Return the number format of a tensor."""
        return _DTYPES[self._info(tensor).dtype]

    def read(self, piece: Piece) -> torch.Tensor:
        """Return one rectangle."""
        found: torch.Tensor = self._open(piece.tensor).get_slice(piece.tensor)[piece.where]
        return self._meter.watch(found)

    def _info(self, tensor: str) -> TensorInfo:
        return self._found.tensors[tensor]

    def _open(self, tensor: str) -> Any:
        file = self._info(tensor).file
        if file not in self._files:
            self._files[file] = self._stack.enter_context(safe_open(str(file), framework="pt"))
        return self._files[file]
