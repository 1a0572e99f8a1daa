"""The environment of a rank: every variable that the launcher sets, with its value and the reason.

Who wins, weakest first: our defaults, the backend, the platform, the network that was found, what the caller's shell
already exports, what was asked for by name (threads, determinism, a network), hooks, the job's `env`. What the run
contract says (`PRIMUS_*`, the rank numbers) is not open to any of them: a job that sets such a name is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem
from primus_hydra.hooks.values import HookValues
from primus_hydra.host.gpu import renumbered_masks
from primus_hydra.runtime.reserved import EXTRA_VARIABLE, is_reserved


@dataclass(frozen=True, kw_only=True)
class EnvVariable:
    """One variable of a rank and why it has this value.

    `over_shell`: it wins over what the caller's shell exports, as somebody asked for it by name. `own`: it holds on
    this node only, and other nodes of the job find their own.
    """

    name: str
    value: str
    reason: str
    over_shell: bool = False
    own: bool = False


def environment_problems(job: JobConfig) -> list[Problem]:
    """Say which of the job's own variables belong to the launcher."""
    return [
        Problem(key=f"env.{name}", what="this variable is set by the launcher", hint=f"remove env.{name}")
        for name in job.env
        if is_reserved(name)
    ]


def rank_environment(
    job: JobConfig,
    *,
    run_dir: str,
    attempt: int,
    ranks_on_node: int,
    single_node: bool,
    cores: int,
    bound_cores: int | None = None,
    backend_env: Mapping[str, str],
    inherited: Mapping[str, str],
    asked: Sequence[EnvVariable] = (),
    hooks: Sequence[EnvVariable] = (),
) -> list[EnvVariable]:
    """Return the variables that all ranks share, each once, sorted by name; what only one rank has is not among them.

    `cores` are those that this node may use, `bound_cores` those that ranks are bound to (of the rank with the fewest),
    `inherited` is the caller's environment, `asked` what the network and determinism want, `hooks` what hooks set.
    """
    threads = _threads(ranks_on_node, cores, bound_cores)
    chosen = _named(_defaults(single_node, threads))
    chosen |= _layer(backend_env, f"wanted by the {job.backend.name} backend")
    chosen |= _layer(job.platform.env, f"platform {job.platform.name}")
    chosen |= _named(variable for variable in asked if not variable.over_shell)
    chosen |= _layer({name: inherited[name] for name in chosen if name in inherited}, "already exported by the caller")
    chosen |= _named(mask_variables(job, inherited))
    if job.launch.threads_per_rank is not None:
        chosen |= _layer({"OMP_NUM_THREADS": str(job.launch.threads_per_rank)}, "launch.threads_per_rank")
    chosen |= _named(variable for variable in asked if variable.over_shell)
    chosen |= _named(hooks)
    chosen |= _layer(job.env, "env of the job")
    chosen |= _named(_contract(job, run_dir, attempt))
    return sorted(chosen.values(), key=lambda variable: variable.name)


def hook_variables(values: HookValues, *, own: bool = False) -> list[EnvVariable]:
    """Return what hooks want of the ranks' environment; `own`: of those on this node only."""
    found = [
        EnvVariable(name=variable.name, value=variable.value, reason=f"hook {variable.hook}", own=own)
        for variable in values.variables
    ]
    if values.extra:
        text = json.dumps(values.extra, ensure_ascii=False)
        found.append(EnvVariable(name=EXTRA_VARIABLE, value=text, reason="extra values of hooks", own=own))
    return found


def mask_variables(job: JobConfig, inherited: Mapping[str, str], *, own: bool = False) -> list[EnvVariable]:
    """Return masks of GPUs that the caller's environment has twice; `own`: those of this node only."""
    reason = "the GPUs that ROCR_VISIBLE_DEVICES leaves, counted from 0: it named them by the node's numbers again"
    masks = renumbered_masks(job.platform.vendor, inherited)
    return [
        EnvVariable(name=name, value=value, reason=reason, over_shell=True, own=own) for name, value in masks.items()
    ]


def own_environment(
    own: Iterable[EnvVariable], *, shared: Mapping[str, str], inherited: Mapping[str, str]
) -> list[EnvVariable]:
    """Return what a node adds to the environment that the first node decided for all (`shared`), which wins."""
    return [
        variable
        for variable in own
        if variable.name not in shared and (variable.over_shell or variable.name not in inherited)
    ]


def _named(variables: Iterable[EnvVariable]) -> dict[str, EnvVariable]:
    return {variable.name: variable for variable in variables}


def _layer(values: Mapping[str, str], reason: str) -> dict[str, EnvVariable]:
    return {name: EnvVariable(name=name, value=value, reason=reason) for name, value in values.items()}


def _threads(ranks_on_node: int, cores: int, bound_cores: int | None) -> EnvVariable:
    """Return the threads of a rank: its share of the cores, also of a quota, and no more than it is bound to."""
    threads = max(1, cores // ranks_on_node)
    why = f"{cores} usable cores over {ranks_on_node} ranks"
    if bound_cores is not None and bound_cores <= threads:
        threads, why = bound_cores, f"a rank is bound to {bound_cores} cores"
    reason = f"{why}; more threads than cores slow a step many times"
    return EnvVariable(name="OMP_NUM_THREADS", value=str(threads), reason=reason)


def _defaults(single_node: bool, threads: EnvVariable) -> list[EnvVariable]:
    variables = [
        threads,
        EnvVariable(
            name="TOKENIZERS_PARALLELISM", value="false", reason="its threads do not survive forked data workers"
        ),
        EnvVariable(name="PYTHONUNBUFFERED", value="1", reason="a log must hold the last words of a killed rank"),
    ]
    if single_node:
        reason = "one node: gloo needs no network, and the host's name may not resolve"
        variables.append(EnvVariable(name="GLOO_SOCKET_IFNAME", value="lo", reason=reason))
    return variables


def _contract(job: JobConfig, run_dir: str, attempt: int) -> list[EnvVariable]:
    return [
        EnvVariable(name="PRIMUS_RUN_DIR", value=run_dir, reason="directory of the run"),
        EnvVariable(name="PRIMUS_ATTEMPT", value=str(attempt), reason="starts of this run by a launcher, from 1"),
        EnvVariable(name="PRIMUS_RESUME", value=job.resume, reason="resume"),
        EnvVariable(name="PRIMUS_STOP_GRACE_S", value=f"{job.launch.stop_grace_s:g}", reason="launch.stop_grace_s"),
        EnvVariable(
            name="TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
            value="1",
            reason="restarted ranks need a fresh store: in a shared one they read the addresses of the dead",
        ),
    ]
