"""The surface is frozen: a change of a group, option, key, default or flag shows in its golden file."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from primus_hydra.config import key_table
from tests.surface import surface

GOLDEN = Path(__file__).parents[1] / "golden" / "surface.txt"
UPDATE = "PRIMUS_UPDATE_GOLDEN"


def test_what_a_user_can_type_is_what_the_golden_file_says() -> None:
    now = surface()
    if os.environ.get(UPDATE) == "1":
        GOLDEN.write_text(now, encoding="utf-8")
    before = GOLDEN.read_text(encoding="utf-8")
    changes = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "golden", "now", lineterm="", n=0))

    assert before == now, f"the surface changed; if that is meant, run once with {UPDATE}=1\n{changes}"


def test_the_surface_holds_flags_groups_keys_and_options_of_tasks() -> None:
    lines = surface().splitlines()

    assert {"flag --cfg", "flag --completion", "key optimizer.lr: float (> 0) = 0.0003"} <= set(lines)
    assert any(line.startswith("group model: ") and "llama3_8b" in line for line in lines)
    assert any(line.startswith("task=plan key task.show: text") for line in lines)
    assert sum(line.startswith("key ") for line in lines) == len(key_table.job_rows())
