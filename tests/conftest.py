"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# Two busy cores make timings unreliable; a found failure must be found again by everyone.
settings.register_profile("project", deadline=None, derandomize=True, print_blob=True, max_examples=60)
settings.load_profile("project")
