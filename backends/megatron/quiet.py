"""Hold back notices of Megatron that no user can act on: about kernels a CPU cannot use, and about its own defaults.

Only those are held back, by their text: other warnings, logs and every error pass.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NO_FUSED_KERNELS: Final = r"(Transformer Engine and )?Apex (is|are) not installed\."
_OWN_DEFAULTS: Final = (r"full scope is deprecated", r"If you are using transformer_engine as the transformer")
_EXTENSIONS_LOG: Final = "torch.utils.cpp_extension"
_NO_DEVICE: Final = "No CUDA runtime is found"


@contextmanager
def without_gpu_notices() -> Iterator[None]:
    """Hold back what Megatron and torch say, while they are imported, about fused kernels and a missing device."""
    log = logging.getLogger(_EXTENSIONS_LOG)
    log.addFilter(_is_news)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_FUSED_KERNELS)
            yield
    finally:
        log.removeFilter(_is_news)


@contextmanager
def without_notices_of_defaults() -> Iterator[None]:
    """Hold back what Megatron's configuration classes say, while they are built, about values they have themselves."""
    with warnings.catch_warnings():
        for text in _OWN_DEFAULTS:
            warnings.filterwarnings("ignore", message=text)
        yield


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NO_DEVICE)
