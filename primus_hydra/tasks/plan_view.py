"""From a composed job and its launch plan to what `task=plan` shows; asks, and changes nothing."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_hydra.config.build import defaults_of
from primus_hydra.config.composed import Composed
from primus_hydra.config.count import active_parameter_count, parameter_count
from primus_hydra.config.resolve import flatten
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.data.tokenizer import tokenizer_vocab_size
from primus_hydra.errors import Problem, UserError, raise_all
from primus_hydra.hooks.entry import read_hooks
from primus_hydra.host.packages import installed_version
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.meeting import current_host
from primus_hydra.launch.environment import EnvVariable
from primus_hydra.launch.outer import outer_launch
from primus_hydra.launch.plan import LaunchPlan, needs_cluster
from primus_hydra.patching import PatchContext, Selection
from primus_hydra.run.lock import read_holder
from primus_hydra.slurm.script import script_text, srun_argv
from primus_hydra.tasks.disk_room import room_problem
from primus_hydra.tasks.patches import patch_rows
from primus_hydra.tasks.plan_projection import project
from primus_hydra.tasks.preparation import Standing, plan_attempt, standing_of
from primus_hydra.tasks.readiness import Examination, examine
from primus_hydra.tasks.submission import Checked, next_submission, slurm_job, submission_problems
from primus_hydra.ui.plan_view import (
    BackendPart,
    HookLine,
    LaunchPart,
    LayoutPart,
    ModelPart,
    NoteLine,
    PatchLine,
    PlanView,
    RankLine,
    RunPart,
    SubmissionPart,
    ValueLine,
    Variable,
)

_MISSING = object()


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The launch plan of a job, with what was found out on the way."""

    composed: Composed
    examination: Examination
    standing: Standing
    launch: LaunchPlan


def plan_job(composed: Composed) -> Planned:
    """Plan what `task=train` would do now; raises UserError with everything the user must mend."""
    submitted = composed.launcher == "submitit"
    found = examine(composed.job, os.environ, on_this_host=not submitted)
    if submitted:
        raise_all([*found.users, *submission_problems(composed)])
    standing = standing_of(composed)
    launch = plan_attempt(
        composed,
        found.ready(),
        standing.paths,
        attempt=standing.attempt,
        data=None,
        resume_from=standing.step if standing.kind == "resume" else None,
        planned=_planned_node(composed.job.launch.nodes) if submitted or _elsewhere(composed.job) else None,
    )
    return Planned(composed=composed, examination=found, standing=standing, launch=launch)


def _elsewhere(job: JobConfig) -> bool:
    """Whether the job needs nodes that are not here; a plan shows it all the same."""
    return job.launch.nodes > 1 and current_host() is None and outer_launch(os.environ) is None


def view_of(planned: Planned, show: str) -> PlanView:
    """Return what is shown of a plan; `show` is `changed`, `all`, or a key or node. Raises UserError for another."""
    job = planned.composed.job
    model, model_notes = _model(job)
    return PlanView(
        point=tuple(planned.composed.swept),
        run=_run(planned.standing, planned.composed),
        model=model,
        backend=_backend(planned.examination),
        layout=_layout(planned),
        shown=show,
        values=tuple(values_of(planned.composed, show)),
        launch=_launch(planned.launch),
        patches=tuple(_patches(planned.examination)),
        notes=(*model_notes, *_notes(planned)),
        hooks=tuple(_hooks(job)),
        submission=_submission(planned) if planned.composed.launcher == "submitit" else None,
        projection=project(job, planned.launch.spec.layout, model.vocab_size) if model.vocab_size else None,
    )


def _planned_node(nodes: int) -> ClusterNode:
    """Return the first node of a job that Slurm has not allocated yet: the hosts have no names."""
    hosts = tuple(f"NODE_{index}" for index in range(nodes))
    return ClusterNode(job_id="JOB", restart=0, index=0, hosts=hosts, port=0)


def _submission(planned: Planned) -> SubmissionPart:
    paths = planned.standing.paths
    checked = Checked(composed=planned.composed, ready=planned.examination.ready(), paths=paths)
    job = slurm_job(checked, next_submission(paths))
    return SubmissionPart(script=script_text(job), srun=tuple(srun_argv(job)))


def values_of(composed: Composed, show: str) -> list[ValueLine]:
    """Return the leaves to show with their sources. `changed` leaves out `task.*`, which is about the plan itself."""
    leaves = flatten(composed.tree)
    if show == "changed":
        chosen = [leaf for leaf in leaves if _is_changed(composed, leaf, leaves[leaf])]
    elif show == "all":
        chosen = list(leaves)
    else:
        chosen = _below(show.rstrip("."), leaves)
    return [ValueLine(key=leaf, value=leaves[leaf], source=_source(composed, leaf)) for leaf in chosen]


def _is_changed(composed: Composed, leaf: str, value: object) -> bool:
    """Whether something set a leaf to another value than the schema; a default made absolute is still the schema's."""
    if leaf.startswith("task.") or getattr(composed.provenance.get(leaf), "kind", None) == "schema":
        return False
    return bool(value != _defaults().get(leaf, _MISSING))


@functools.cache
def _defaults() -> dict[str, Any]:
    return flatten(defaults_of(JobConfig))


def _below(prefix: str, leaves: Mapping[str, Any]) -> list[str]:
    chosen = [leaf for leaf in leaves if leaf == prefix or leaf.startswith(f"{prefix}.")]
    if not chosen:
        nodes = {leaf.rpartition(".")[0] for leaf in leaves} - {""}
        hint = did_you_mean(prefix, ["changed", "all", *sorted(nodes), *leaves])
        what = f"there is no key or node {prefix!r} to show"
        raise UserError(Problem(key="task.show", what=what, hint=hint or "use changed, all, a node or a key"))
    return chosen


def _source(composed: Composed, leaf: str) -> str:
    source = composed.provenance.get(leaf)
    return str(getattr(source, "text", source)) if source is not None else "unknown"


def _run(standing: Standing, composed: Composed) -> RunPart:
    root, job = standing.paths.root, composed.job
    return RunPart(
        name=f"{root.parent.name}/{root.name}" if composed.swept else root.name,
        directory=str(standing.paths.root),
        standing=standing.kind,
        attempt=standing.attempt,
        step=standing.step,
        steps=job.training.steps,
    )


def _model(job: JobConfig) -> tuple[ModelPart, list[NoteLine]]:
    try:
        vocabulary = job.model.vocab_size or tokenizer_vocab_size(job)
        total, active = (count(job.model, vocabulary) for count in (parameter_count, active_parameter_count))
    except UserError as error:
        unknown = ModelPart(name=job.model.name, vocab_size=None, parameters=None, active_parameters=None)
        return unknown, [_note(problem) for problem in error.problems]
    part = ModelPart(name=job.model.name, vocab_size=vocabulary, parameters=total, active_parameters=active)
    return part, []


def _backend(found: Examination) -> BackendPart:
    return BackendPart(
        name=found.job.backend.name,
        version=found.backend.version or None,
        commit=found.backend.commit,
        platform=found.job.platform.name,
    )


def _layout(planned: Planned) -> LayoutPart:
    layout, training = planned.launch.spec.layout, planned.composed.job.training
    per_step = layout.global_batch_size * training.seq_length
    return LayoutPart(
        nodes=layout.nodes,
        ranks_per_node=layout.ranks_per_node,
        world_size=layout.world_size,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        dp_shard=layout.dp_shard,
        dp_replicate=layout.dp_replicate,
        micro_batch_size=layout.micro_batch_size,
        microbatches=layout.microbatches,
        global_batch_size=layout.global_batch_size,
        seq_length=training.seq_length,
        tokens_per_step=per_step,
        tokens=per_step * training.steps,
    )


def _launch(plan: LaunchPlan) -> LaunchPart:
    """Show the launch plan as it is; what all ranks have alike is told once."""
    own = [set(rank.environment) for rank in plan.ranks]
    alike = set.intersection(*own)
    shared = [*plan.environment, *(variable for variable in plan.ranks[0].environment if variable in alike)]
    return LaunchPart(
        how=plan.how,
        binding=plan.binding.reason,
        argv=plan.started,
        environment=tuple(_variable(variable) for variable in sorted(shared, key=lambda v: v.name)),
        ranks=tuple(
            RankLine(
                rank=rank.rank,
                node=rank.node,
                argv=rank.argv,
                environment=tuple(_variable(v) for v in rank.environment if v not in alike),
                cpus=rank.cpus,
            )
            for rank in plan.ranks
        ),
    )


def _variable(variable: EnvVariable) -> Variable:
    return Variable(name=variable.name, value=variable.value, reason=variable.reason)


def _patches(found: Examination) -> Iterator[PatchLine]:
    job, backend = found.job, found.backend
    context = PatchContext(
        job=job,
        backend=job.backend.name,
        backend_version=backend.version or None,
        backend_commit=backend.commit,
        torch_version=installed_version("torch"),
        stage=job.module,
    )
    for row in patch_rows(context, Selection.of(job.patches, os.environ)):
        yield PatchLine(id=row.id, phase=row.phase, status=row.status, reason=row.reason, why=row.why)


def _hooks(job: JobConfig) -> Iterator[HookLine]:
    hooks, _ = read_hooks(job.hooks)
    for hook in hooks:
        yield HookLine(phase=hook.phase, name=hook.name, what=hook.what, timeout_s=hook.timeout_s)


def _notes(planned: Planned) -> Iterator[NoteLine]:
    yield from (NoteLine(what=note) for note in planned.composed.notes if note)
    yield from (_note(problem) for problem in planned.examination.hosts)
    yield from (_note(problem) for problem in planned.standing.problems)
    yield from (_note(problem) for problem in _room(planned))
    for damaged in planned.standing.set_aside:
        yield NoteLine(what=f"the checkpoint {damaged.path.name} would be set aside: {damaged.reason}")
    if planned.composed.launcher == "submitit":
        what = "threads, CPUs and the network of a rank are decided on its node; those shown are of this machine"
        yield NoteLine(what=what)
    elif _elsewhere(planned.composed.job):
        yield _note(needs_cluster(planned.launch.spec.layout))
    holder = read_holder(planned.standing.paths.lock)
    if holder is not None:
        yield NoteLine(what=f"another attempt seems to be at work in the run: {holder}")


def _room(planned: Planned) -> list[Problem]:
    """Return what the disk lacks; of a job for another machine only that one's disk would tell."""
    standing = planned.standing
    if planned.examination.hosts or standing.kind in ("finished", "refused"):
        return []
    problem = room_problem(standing.paths, planned.composed.job)
    return [] if problem is None else [problem]


def _note(problem: Problem) -> NoteLine:
    return NoteLine(what=problem.what, key=problem.key, hint=problem.hint)
