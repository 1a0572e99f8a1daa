"""What is asked of the process that converts weights, and what it answers: plain data that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

NativeKind = Literal["torchtitan", "megatron"]
Kind = Literal["hf", "torchtitan", "megatron"]
Dtype = Literal["keep", "float32", "bfloat16", "float16"]
Verify = Literal["auto", "logits", "tensors", "none"]

NATIVE: Final[tuple[NativeKind, ...]] = ("torchtitan", "megatron")
JOURNAL: Final = "primus_conversion.json"
"""What a conversion leaves in its folder: what was asked, and which files are done."""


@dataclass(frozen=True, kw_only=True)
class ConvertRequest:
    """One conversion: of the model in `job` (a file as runs keep it), one side of which is Hugging Face's layout.

    `tokenizer_dir` goes with an exported model. `shard_bytes` is how large a file becomes before the next one begins.
    """

    job: str
    source: str
    source_kind: Kind
    to: Kind
    output: str
    dtype: Dtype
    shard_bytes: int
    verify: Verify
    tokenizer_dir: str | None = None

    @property
    def native(self) -> NativeKind:
        """The side that is a backend's."""
        native: Kind = self.source_kind if self.to == "hf" else self.to
        if native == "hf":
            raise ValueError("one side of a conversion is a backend's checkpoint")
        return native

    def write(self, file: Path) -> None:
        """Write it as JSON."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> ConvertRequest:
        """Read what `write` wrote."""
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(**data)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was found equal: tensors read back, and logits of `transformers` and of the backend, if they were compared.

    `logits_off` is the largest difference, `logits_spread` the standard deviation of the logits; `note` says why they
    were not compared.
    """

    tensors: int = 0
    logits_off: float | None = None
    logits_spread: float | None = None
    logits_hash: str | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class ConvertResult:
    """How a conversion ended. `peak_bytes` is the most that its tensors held at one time."""

    files: int
    files_reused: int
    tensors: int
    bytes: int
    peak_bytes: int
    largest_bytes: int
    verified: Verified

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConvertResult:
        """Read what `to_json` wrote."""
        return cls(**{**data, "verified": Verified(**data["verified"])})
