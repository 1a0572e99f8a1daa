"""Which old checkpoints go, and how: the newest stay, some stay for good, and the last good one is never touched.

Only a complete newer checkpoint makes an old one superfluous. Before its files are deleted a checkpoint loses its name
in one rename, so that a deletion cut short never looks like a damaged checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.manifest import MANIFEST
from primus_hydra.run.paths import RunPaths

# No name of ours holds `step-N`: torchtitan takes every such name for a checkpoint.
_RETIRED = "superseded-"


def superfluous(steps: Iterable[int], newest: int, *, keep: int, keep_every: int | None) -> list[int]:
    """Return which of the complete checkpoints at `steps` go now that the one at `newest` is complete too, ascending.

    The `keep` newest up to `newest` stay (0: all), and so do those at multiples of `keep_every`. Steps beyond
    `newest` are another attempt's, and stay.
    """
    if keep == 0:
        return []
    known = sorted({step for step in steps if step <= newest} | {newest})
    return [step for step in known[:-keep] if not (keep_every and step % keep_every == 0)]


def spare(steps: Iterable[int], coming: int, *, keep: int, keep_every: int | None) -> list[int]:
    """Return which complete checkpoints go as soon as the one at `coming` is complete, and may go before it, ascending.

    The newest one is never among them: until the coming one is complete it is all that there is.
    """
    earlier = {step for step in steps if step < coming}
    return [step for step in superfluous(earlier, coming, keep=keep, keep_every=keep_every) if step != max(earlier)]


def most_more(steps: Iterable[int], coming: Sequence[int], *, keep: int, keep_every: int | None) -> int:
    """Return how many checkpoints more than those at `steps` there are at most while those at `coming` are saved.

    While one is written, all that are kept beside it are still there; they are most when the last one is written.
    """
    if not coming:
        return 0
    present = set(steps)
    before = present | set(coming[:-1])
    gone = superfluous(before, max(before), keep=keep, keep_every=keep_every) if before else []
    return max(1, len(before) - len(gone) + 1 - len(present))


def finished_steps(paths: RunPaths) -> list[int]:
    """Return the steps of the checkpoints whose save finished, ascending; their files are not looked at."""
    return [step for step in checkpoint_steps(paths) if (paths.checkpoint(step) / MANIFEST).is_file()]


def retire(folder: Path) -> Path | None:
    """Take a checkpoint's name away; return where its files wait to be deleted, None if it is gone already.

    Raises OSError.
    """
    target = folder.with_name(_RETIRED + folder.name.removeprefix("step-"))
    # What is left of an earlier deletion of that step.
    shutil.rmtree(target, ignore_errors=True)
    try:
        return folder.rename(target)
    except FileNotFoundError:
        return None


def sweep_retired(paths: RunPaths) -> None:
    """Delete what deletions that were cut short left behind; only the one live attempt of a run may call it."""
    for folder in paths.checkpoints.glob(f"{_RETIRED}*"):
        shutil.rmtree(folder, ignore_errors=True)
