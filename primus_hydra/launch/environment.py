"""The environment of a rank: every variable that the launcher sets, with its value and the reason.

Who wins, weakest first: our defaults, the backend, the platform, what the caller's shell already exports, the job's
`env`. What the run contract says (`PRIMUS_*`, the rank numbers) is not open to any of them: a job that sets such a
name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Names by which torchrun tells a rank who it is."""

_CONTRACT = ("PRIMUS_RUN_DIR", "PRIMUS_ATTEMPT", "PRIMUS_RESUME", "PRIMUS_STOP_GRACE_S", "PRIMUS_PARENT_PID")


@dataclass(frozen=True, kw_only=True)
class EnvVariable:
    """One variable of a rank and why it has this value."""

    name: str
    value: str
    reason: str


def environment_problems(job: JobConfig) -> list[Problem]:
    """Say which of the job's own variables belong to the launcher."""
    return [
        Problem(key=f"env.{name}", what="this variable is set by the launcher", hint=f"remove env.{name}")
        for name in job.env
        if name in RANK_VARIABLES or name in _CONTRACT
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
) -> list[EnvVariable]:
    """Return the variables that all ranks share, each once, sorted by name; what only one rank has is not among them.

    `cores` are those that this node may use, `bound_cores` those that ranks are bound to (of the rank with the fewest),
    `inherited` is the caller's environment.
    """
    threads = _threads(ranks_on_node, cores, bound_cores)
    chosen = {variable.name: variable for variable in _defaults(single_node, threads)}
    chosen |= _layer(backend_env, f"wanted by the {job.backend.name} backend")
    chosen |= _layer(job.platform.env, f"platform {job.platform.name}")
    chosen |= _layer({name: inherited[name] for name in chosen if name in inherited}, "already exported by the caller")
    if job.launch.threads_per_rank is not None:
        chosen |= _layer({"OMP_NUM_THREADS": str(job.launch.threads_per_rank)}, "launch.threads_per_rank")
    chosen |= _layer(job.env, "env of the job")
    chosen |= {variable.name: variable for variable in _contract(job, run_dir, attempt)}
    return sorted(chosen.values(), key=lambda variable: variable.name)


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
