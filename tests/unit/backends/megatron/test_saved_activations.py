"""The plan's formula for what a layer keeps is what Megatron's local layers keep on a processor."""

from __future__ import annotations

from benchmarks import saved_activations


def test_the_formula_is_within_five_percent_over_the_grid() -> None:
    with saved_activations.one_rank():
        cells = list(saved_activations.grid("megatron"))

    assert len(cells) == 24
    assert [cell for cell in cells if abs(cell.error) > 0.05] == []
