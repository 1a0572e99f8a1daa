"""A cache folder of the test's own, and a text that is long enough to train on."""

import random
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PRIMUS_CACHE", str(folder))
    return folder


@pytest.fixture
def prose() -> str:
    words = "the model learns to tell one word from another while Zoë écrit für 日本 and counts 1 2 3".split()  # noqa: SIM905
    pick = random.Random(0)
    return "\n".join(" ".join(pick.choices(words, k=12)) for _ in range(300)) + "\n"
