"""Real text, prepared once, and a server of ranks that imported Megatron once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.ranked.lab import Lab, open_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab("megatron", tmp_path_factory.mktemp("megatron"), {"training.seq_length": 64}) as lab:
        yield lab
