"""The words of `init_from`: a checkpoint folder of the backend's own, or `hf:DIR` for Hugging Face weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

HF: Final = "hf:"
"""What stands before the folder of a model in Hugging Face's layout."""


def split_prefix(init_from: str) -> tuple[str, str]:
    """Return the prefix (`hf:` or nothing) and the path behind it."""
    return (HF, init_from.removeprefix(HF)) if init_from.startswith(HF) else ("", init_from)


def hf_folder(init_from: str | None) -> Path | None:
    """Return the folder of Hugging Face weights, or None where `init_from` names no such folder."""
    if init_from is None:
        return None
    prefix, path = split_prefix(init_from)
    return Path(path).expanduser() if prefix else None
