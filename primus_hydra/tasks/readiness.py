"""Everything that can be said against a job before anything starts, in one answer.

What the user can mend and what the machine lacks are gathered together; the answer is a UserError as soon as one
problem is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from primus_hydra.config.instantiate import load_target
from primus_hydra.config.layout import Layout, layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.check import check_data, missing_on_host
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.host.detect import detect_platform
from primus_hydra.host.packages import checkout_commit
from primus_hydra.launch.host_check import host_problems
from primus_hydra.launch.plan import BackendFacts
from primus_hydra.patching import REGISTRY, Selection, load_patches
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.runtime.trackers import tracker_problems


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A job that nothing stands against: its layout over ranks, and the facts of its backend."""

    job: JobConfig
    layout: Layout
    backend: BackendFacts


def check_ready(job: JobConfig, environment: Mapping[str, str], *, on_this_host: bool = True) -> Ready:
    """Check a job; raises UserError or HostError with everything that stands against it.

    `on_this_host=False` leaves out whether this machine is the platform and has the libraries: for a plan.
    """
    adapter = load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]
    layout, users = layout_of(job)
    users = [*users, *adapter.problems(), *check_data(job), *_patch_problems(job, environment)]
    hosts = _host_problems(job, layout) if on_this_host else []
    backend, lacking = _backend_facts(adapter)
    hosts += lacking
    if users:
        raise UserError(*users, *hosts)
    if hosts:
        raise HostError(*hosts)
    assert layout is not None, "a layout without problems exists"
    return Ready(job=job, layout=layout, backend=backend)


def _patch_problems(job: JobConfig, environment: Mapping[str, str]) -> list[Problem]:
    load_patches(job.backend.name)
    known = [patch.id for patch in REGISTRY.patches(job.backend.name)]
    return Selection.of(job.patches, environment).problems(known)


def _host_problems(job: JobConfig, layout: Layout | None) -> list[Problem]:
    detection = detect_platform({job.platform.name: job.platform.product_names})
    ranks = layout.ranks_per_node if layout else job.launch.ranks_per_node
    return [*host_problems(job.platform, detection, ranks), *missing_on_host(job), *tracker_problems(job)]


def _backend_facts(adapter: BackendAdapter) -> tuple[BackendFacts, list[Problem]]:
    try:
        path = adapter.setup_backend_path()
        version = adapter.detect_backend_version()
    except HostError as error:
        return BackendFacts(version=""), list(error.problems)
    commit = checkout_commit(path) if path else None
    return BackendFacts(version=version, commit=commit, env=adapter.env_defaults()), []
