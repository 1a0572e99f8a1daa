"""`model.parameters` kept true: the total of a file is checked, and counted anew where sizes were overridden.

A file states the total of the sizes beside it. A size from elsewhere (the command line, an experiment) makes another
model, whose total then follows; a total that its own place got wrong, or that was typed wrong, is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from primus_hydra.config.count import parameter_count
from primus_hydra.config.provenance import Source
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, UserError

KEY: Final = "model.parameters"
_COUNTED: Final = Source(kind="detected", text="counted from the sizes of the model")
_NO_SIZE: Final = (KEY, "model.name", "model.source", "model.path")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totalled:
    """The job and its tree with a true total, or the problem of a wrong one."""

    job: JobConfig
    tree: dict[str, Any]
    problems: list[Problem] = dataclasses.field(default_factory=list)


def with_true_total(job: JobConfig, tree: dict[str, Any], sources: MutableMapping[str, Source]) -> Totalled:
    """Return job and tree whose `model.parameters` is the count of the model; notes in `sources` where it was counted.

    What the count cannot be made of is left alone: the checks of the model report it.
    """
    stated, counted = job.model.parameters, _count(job)
    if stated is None or counted is None or stated == counted:
        return Totalled(job=job, tree=tree)
    if not _overridden(sources):
        hint = f"write parameters: {counted}, or leave it out"
        what = f"{stated} is not the total of these sizes, which is {counted}"
        return Totalled(job=job, tree=tree, problems=[Problem(key=KEY, what=what, hint=hint)])
    sources[KEY] = _COUNTED
    model = dataclasses.replace(job.model, parameters=counted)
    return Totalled(
        job=dataclasses.replace(job, model=model), tree={**tree, "model": {**tree["model"], "parameters": counted}}
    )


def _count(job: JobConfig) -> int | None:
    try:
        return parameter_count(job.model)
    except (UserError, ValueError):
        return None


def _overridden(sources: Mapping[str, Source]) -> bool:
    """Whether a key of the model was set in another place than the total was, which a file stated."""
    stated = sources.get(KEY)
    if stated is None or stated.kind == "override":
        return False
    place = _place(stated)
    sizes = {leaf: source for leaf, source in sources.items() if leaf.startswith("model.") and leaf not in _NO_SIZE}
    return any(source.kind != "schema" and _place(source) != place for source in sizes.values())


def _place(source: Source | None) -> str | None:
    return None if source is None else source.file or source.text
