"""Everything that can be said against a job before anything starts, in one answer.

What the user can mend and what the machine lacks are gathered together; the answer is a UserError as soon as one
problem is the user's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from primus_hydra.config.instantiate import load_target
from primus_hydra.config.layout import Layout, layout_of
from primus_hydra.config.schema import JobConfig, NetworkConfig
from primus_hydra.data.check import check_data, missing_on_host
from primus_hydra.data.tokenizer import tokenizer_vocab_size
from primus_hydra.errors import HostError, PrimusError, Problem, UserError
from primus_hydra.hooks.entry import read_hooks
from primus_hydra.host.detect import Detection, detect_platform
from primus_hydra.host.gpu import Gpu, renumbered_masks
from primus_hydra.host.packages import checkout_commit
from primus_hydra.launch.container_check import container_problems, engine_problems
from primus_hydra.launch.containment import is_contained
from primus_hydra.launch.host_check import host_problems
from primus_hydra.launch.outer import outer_launch
from primus_hydra.launch.plan import BackendFacts
from primus_hydra.patching import REGISTRY, Selection, load_patches
from primus_hydra.plan.legality import legality_problems
from primus_hydra.plan.setting import setting_of
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.runtime.trackers import tracker_problems


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A job that nothing stands against: its layout over ranks, the facts of its backend, and GPUs for it here."""

    job: JobConfig
    layout: Layout
    backend: BackendFacts
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Everything that was found out about a job: `users` must mend their problems, `hosts` are what machines lack.

    `layout` is None only beside a problem of the user's; the version in `backend` is empty where it is not known.
    `gpus` are the visible ones of the platform's vendor, in the order of local ranks.
    """

    job: JobConfig
    layout: Layout | None
    backend: BackendFacts
    users: tuple[Problem, ...]
    hosts: tuple[Problem, ...]
    gpus: tuple[Gpu, ...] = ()

    def ready(self) -> Ready:
        """Return the job as ready, whatever a machine may lack; raises UserError with everything the user must mend."""
        if self.users:
            raise UserError(*self.users)
        assert self.layout is not None, "a layout without problems exists"
        return Ready(job=self.job, layout=self.layout, backend=self.backend, gpus=self.gpus)


def examine(job: JobConfig, environment: Mapping[str, str], *, on_this_host: bool = True) -> Examination:
    """Find out everything that stands against a job, without raising it and without touching anything.

    `on_this_host=False` leaves out whether this machine is the platform and has the libraries.
    """
    adapter = load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]
    layout, users = layout_of(job)
    users = [*users, *adapter.problems(), *_data_problems(job), *_patch_problems(job, environment)]
    users += _legality_problems(job, layout, {problem.key for problem in users})
    users += [*read_hooks(job.hooks, check_paths=job.launch.check_paths)[1], *_outer_problems(job, environment)]
    users += container_problems(job, here=on_this_host, submitted=not on_this_host or "SLURM_STEP_ID" in environment)
    here = _detection(job, environment) if on_this_host else None
    hosts = [*_host_problems(job, layout, here), *_missing_packages(job, adapter)] if here else []
    backend, lacking = _backend_facts(adapter)
    wrong = [problem for problem in lacking.problems if problem not in users] if isinstance(lacking, UserError) else []
    # A backend that is not here may be in the image.
    missing = lacking.problems if isinstance(lacking, HostError) and job.launch.container.kind == "none" else ()
    return Examination(
        job=job,
        layout=layout,
        backend=backend,
        users=(*users, *wrong),
        hosts=(*hosts, *missing),
        gpus=tuple(gpu for gpu in here.gpus if gpu.vendor == job.platform.vendor) if here else (),
    )


def _legality_problems(job: JobConfig, layout: Layout | None, known: Collection[str | None]) -> list[Problem]:
    """Return broken rules about keys of which nobody has spoken yet; without a vocabulary the data's check speaks."""
    try:
        vocab = job.model.vocab_size or tokenizer_vocab_size(job)
    except UserError:
        return []
    if layout is None:
        return []
    return [problem for problem in legality_problems(setting_of(job, layout, vocab)) if problem.key not in known]


def check_ready(job: JobConfig, environment: Mapping[str, str], *, on_this_host: bool = True) -> Ready:
    """Check a job; raises UserError or HostError with everything that stands against it; arguments as for `examine`."""
    found = examine(job, environment, on_this_host=on_this_host)
    if found.users:
        raise UserError(*found.users, *found.hosts)
    if found.hosts:
        raise HostError(*found.hosts)
    return found.ready()


def _data_problems(job: JobConfig) -> list[Problem]:
    """Return what is wrong with data and tokenizer; paths that exist only on the nodes are taken on trust."""
    on_trust = set() if job.launch.check_paths else {key for key, path in _named_paths(job) if path}
    return [problem for problem in check_data(job) if problem.key not in on_trust]


def _named_paths(job: JobConfig) -> tuple[tuple[str, object], ...]:
    data = (("data.path", job.data.path), ("data.validation_path", job.data.validation_path))
    return (*data, ("tokenizer.path", job.tokenizer.path))


def _patch_problems(job: JobConfig, environment: Mapping[str, str]) -> list[Problem]:
    load_patches(job.backend.name)
    known = [patch.id for patch in REGISTRY.patches(job.backend.name)]
    return Selection.of(job.patches, environment).problems(known)


def _detection(job: JobConfig, environment: Mapping[str, str]) -> Detection:
    """Look at this machine with the eyes of a rank, whose environment may hide GPUs."""
    masks = renumbered_masks(job.platform.vendor, environment)
    seen = {**job.platform.env, **environment, **masks, **job.env}
    return detect_platform({job.platform.name: job.platform.product_names}, env=seen)


def _outer_problems(job: JobConfig, environment: Mapping[str, str]) -> list[Problem]:
    """Return what asks for something on every node where an outer launcher gives us only ranks."""
    outer = outer_launch(environment)
    if outer is None or outer.single_node:
        return []
    what = "an outer launcher started the ranks on several nodes: this cannot be done on each of them"
    asked = (
        ("hooks.pre_train", bool(job.hooks.pre_train), "use hooks.pre_launch, or start with hydra/launcher=submitit"),
        ("network", job.network != NetworkConfig(), "export NCCL_* and GLOO_* there, or set env.NAME=VALUE"),
    )
    return [Problem(key=key, what=what, hint=hint) for key, wrong, hint in asked if wrong]


def _host_problems(job: JobConfig, layout: Layout | None, here: Detection) -> list[Problem]:
    ranks = layout.ranks_per_node if layout else job.launch.ranks_per_node
    return [*host_problems(job.platform, here, ranks), *missing_on_host(job)]


def _missing_packages(job: JobConfig, adapter: BackendAdapter) -> list[Problem]:
    """Return what ranks need and is not installed; in a container they have the image's packages."""
    if is_contained(job):
        return engine_problems(job)
    return [*tracker_problems(job), *adapter.missing_packages()]


def _backend_facts(adapter: BackendAdapter) -> tuple[BackendFacts, PrimusError | None]:
    try:
        path = adapter.setup_backend_path()
        version = adapter.detect_backend_version()
    except (HostError, UserError) as error:
        return BackendFacts(version="", env=adapter.env_defaults()), error
    commit = checkout_commit(path) if path else None
    return BackendFacts(version=version, commit=commit, env=adapter.env_defaults()), None
