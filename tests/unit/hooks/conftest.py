"""A launcher's environment in which hooks of a user's own can be imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.hooks import user_package


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to import `user_hooks` from."""
    return user_package.install(tmp_path_factory.mktemp("site"))


@pytest.fixture
def environment(site: Path) -> dict[str, str]:
    """Return the environment of a launcher whose interpreter sees the package."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    return ours | {"PYTHONPATH": str(site)}
