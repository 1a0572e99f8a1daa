"""Numbers as people read them."""

import pytest

from primus_hydra.ui.words import amount, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (12, "12 s"),
        (59.7, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7_800, "2 h 10 min"),
        (86_400 * 3 + 3_600 * 4, "3 d 04 h"),
        (float("inf"), "?"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (12_345.6, "12.3k"), (4_915_200, "4.92M"), (2.5e12, "2.5T")])
def test_amounts(value, text):
    assert amount(value) == text
