"""The plan's formula for what a layer keeps is what torchtitan's layers keep on a processor."""

from __future__ import annotations

from benchmarks import saved_activations


def test_the_formula_is_within_five_percent_over_the_grid() -> None:
    cells = list(saved_activations.grid("torchtitan"))

    assert len(cells) == 30
    assert {cell.mode for cell in cells} == {"none", "selective", "full"}
    assert [cell for cell in cells if abs(cell.error) > 0.05] == []
