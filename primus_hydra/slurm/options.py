"""What a job asks of Slurm, as options of sbatch, and everything in it that Slurm could not be asked for.

Pure: Slurm itself is asked by nobody here, so a wrong partition shows only when sbatch is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from primus_hydra.config.schema import JobConfig, SlurmConfig
from primus_hydra.errors import Problem
from primus_hydra.launch.cluster.nodelist import expand

NODE = "launch.slurm"
_TIMES = (
    r"(?P<minutes>\d+)",
    r"(?P<minutes>\d+):(?P<seconds>[0-5]?\d)",
    r"(?P<hours>\d+):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]?\d)",
    r"(?P<days>\d+)-(?P<hours>\d+)(:(?P<minutes>[0-5]?\d)(:(?P<seconds>[0-5]?\d))?)?",
)
_IN_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
_MEMORY = re.compile(r"\d+[KMGT]?B?", re.IGNORECASE)

OF_KEYS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "time",
    "constraint": "constraint",
    "reservation": "reservation",
    "dependency": "dependency",
    "exclusive": "exclusive",
    "nodelist": "nodelist",
    "exclude": "exclude",
    "cpus-per-task": "cpus_per_task",
    "mem": "mem",
    "gres": "gpu_option",
    "gpus-per-node": "gpus_per_node",
    "gpus-per-task": "gpu_option",
    "nice": "nice",
    "job-name": "job_name",
    "comment": "comment",
    "mail-user": "mail_user",
    "mail-type": "mail_type",
    "requeue": "requeue",
    "no-requeue": "requeue",
    "signal": "signal_delay_s",
}
"""Options of sbatch that a key gives, and the key below `launch.slurm`."""
_OURS = {
    "nodes": "launch.nodes gives it",
    "ntasks": "a node has one task",
    "ntasks-per-node": "a node has one task",
    "output": "logs go into the run's directory",
    "error": "logs go into the run's directory",
    "open-mode": "a requeue goes on with the log",
    "export": "the job has the environment of the command",
    "input": "the job is handed to srun there",
    "array": "each point of a sweep is a job of its own",
    "wrap": "the script is ours",
    "parsable": "the answer of sbatch is read",
    "wait": "launch.wait waits",
    "test-only": "task=plan submits nothing",
    "chdir": "the job starts where the command was typed",
}
_OURS_OF_SRUN = {
    **{name: _OURS[name] for name in ("nodes", "ntasks", "ntasks-per-node", "output", "error", "open-mode", "export")},
    "cpus-per-task": f"{NODE}.cpus_per_task gives it",
    "kill-on-bad-exit": "it is always set",
    "unbuffered": "it is always set",
    "input": "the job is handed to srun there",
}


def slurm_problems(job: JobConfig) -> list[Problem]:
    """Say everything in `launch.slurm` that cannot be asked of Slurm."""
    slurm = job.launch.slurm
    found = [*_text_problems(slurm), *_time_problems(slurm), *_memory_problems(slurm), *_node_problems(job)]
    return [*found, *_sbatch_problems(slurm.sbatch_args), *_srun_problems(slurm)]


def time_limit_s(text: str) -> int | None:
    """Return the seconds of a time limit as sbatch writes it; None for what it does not understand."""
    for form in _TIMES:
        if match := re.fullmatch(form, text.strip()):
            return sum(int(number) * _IN_SECONDS[unit] for unit, number in match.groupdict().items() if number)
    return None


def cpus_per_task(job: JobConfig, ranks_per_node: int) -> int | None:
    """Return the CPUs to ask for on each node; None leaves them to the site, which mostly counts them by GPU."""
    slurm = job.launch.slurm
    if slurm.cpus_per_task is not None or not job.platform.is_cpu or slurm.exclusive:
        return slurm.cpus_per_task
    return ranks_per_node * (job.launch.threads_per_rank or 1)


def sbatch_options(job: JobConfig, *, ranks_per_node: int) -> dict[str, str | int | bool]:
    """Return the options of sbatch that the keys give, by their long names; True for one that takes no value."""
    slurm = job.launch.slurm
    named = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": slurm.time,
        "constraint": slurm.constraint,
        "reservation": slurm.reservation,
        "dependency": slurm.dependency,
        "exclusive": slurm.exclusive or None,
        "nodelist": slurm.nodelist,
        "exclude": slurm.exclude,
        "cpus-per-task": cpus_per_task(job, ranks_per_node),
        "mem": slurm.mem,
        "nice": slurm.nice,
        "comment": slurm.comment,
        "mail-user": slurm.mail_user,
        "mail-type": slurm.mail_type,
        "signal": f"USR2@{slurm.signal_delay_s}",
        **_gpus(job, ranks_per_node),
        ("requeue" if slurm.requeue else "no-requeue"): True,
    }
    more = {_name(name): _value(value) for name, value in slurm.sbatch_args.items()}
    return {name: value for name, value in {**named, **more}.items() if value is not None}


def _gpus(job: JobConfig, ranks_per_node: int) -> dict[str, str]:
    slurm = job.launch.slurm
    count = slurm.gpus_per_node if slurm.gpus_per_node is not None else 0 if job.platform.is_cpu else ranks_per_node
    if count == 0 or slurm.gpu_option == "none":
        return {}
    wanted = f"{slurm.gpu_type}:{count}" if slurm.gpu_type else str(count)
    if slurm.gpu_option == "gres":
        return {"gres": f"gpu:{wanted}"}
    return {slurm.gpu_option.replace("_", "-"): wanted}


def _text_problems(slurm: SlurmConfig) -> Iterator[Problem]:
    """A line feed would end the line of the script that holds the value."""
    texts = {name: value for name, value in vars(slurm).items() if isinstance(value, str)}
    texts |= {f"sbatch_args.{name}": value for name, value in slurm.sbatch_args.items() if value is not None}
    texts |= {f"srun_args[{place}]": value for place, value in enumerate(slurm.srun_args)}
    for name, value in texts.items():
        if any(letter in value for letter in "\n\r\0"):
            yield Problem(key=f"{NODE}.{name}", what="the value must be one line", hint="write it without line feeds")
        elif not value.strip() and not name.startswith("sbatch_args."):
            yield Problem(key=f"{NODE}.{name}", what="the value is empty", hint="for no value at all write null")
    for place, line in enumerate(slurm.setup):
        if "\0" in line:
            yield Problem(key=f"{NODE}.setup[{place}]", what="the line holds a character that no shell can read")


def _time_problems(slurm: SlurmConfig) -> Iterator[Problem]:
    if slurm.time is None:
        return
    limit = time_limit_s(slurm.time)
    if limit is None:
        what = f"{slurm.time!r} is not a time limit"
        yield Problem(key=f"{NODE}.time", what=what, hint="write minutes, HH:MM:SS or D-HH:MM:SS, as 90 or 1-12:00:00")
    elif limit <= slurm.signal_delay_s:
        what = f"the limit of {limit} s leaves nothing before the {slurm.signal_delay_s} s that are kept for saving"
        yield Problem(key=f"{NODE}.time", what=what, hint=f"raise it, or lower {NODE}.signal_delay_s")


def _memory_problems(slurm: SlurmConfig) -> Iterator[Problem]:
    if slurm.mem is not None and not _MEMORY.fullmatch(slurm.mem.strip()):
        yield Problem(key=f"{NODE}.mem", what=f"{slurm.mem!r} is not an amount of memory", hint="write it as 480G")


def _node_problems(job: JobConfig) -> Iterator[Problem]:
    lists: dict[str, list[str]] = {}
    for name, text in (("nodelist", job.launch.slurm.nodelist), ("exclude", job.launch.slurm.exclude)):
        try:
            lists[name] = expand(text) if text is not None else []
        except ValueError as error:
            yield Problem(key=f"{NODE}.{name}", what=str(error), hint="write it as node[1-3,5]")
    wanted = lists.get("nodelist", [])
    if len(set(wanted)) > job.launch.nodes:
        what = f"it names {len(set(wanted))} nodes for a job of {job.launch.nodes}"
        yield Problem(key=f"{NODE}.nodelist", what=what, hint=f"name fewer, or set launch.nodes={len(set(wanted))}")
    if both := sorted({*wanted} & {*lists.get("exclude", [])}):
        what = f"it leaves out {', '.join(both)}, which {NODE}.nodelist wants"
        yield Problem(key=f"{NODE}.exclude", what=what, hint="name a node in one of the two")


def _sbatch_problems(arguments: Mapping[str, str | None]) -> Iterator[Problem]:
    seen: set[str] = set()
    for given in arguments:
        key, name = f"{NODE}.sbatch_args.{given}", _name(given)
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            yield Problem(key=key, what="this is no long name of an option", hint="write it as sbatch --help does")
        elif name in OF_KEYS:
            what = f"the option has a key of its own, {NODE}.{OF_KEYS[name]}"
            yield Problem(key=key, what=what, hint=f"set {NODE}.{OF_KEYS[name]}")
        elif name in _OURS:
            yield Problem(key=key, what=f"the launcher sets this option: {_OURS[name]}", hint="leave it out")
        elif name in seen:
            yield Problem(key=key, what="the option is given twice", hint="give it once")
        seen.add(name)


def _srun_problems(slurm: SlurmConfig) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, argument in enumerate(slurm.srun_args):
        key, name = f"{NODE}.srun_args[{place}]", argument.partition("=")[0].removeprefix("--")
        if argument in ("-", "--") or not argument.startswith("-"):
            hint = "give each argument whole, as --mpi=none"
            yield Problem(key=key, what=f"{argument!r} would be taken for the command to start", hint=hint)
        elif name in _OURS_OF_SRUN:
            yield Problem(key=key, what=f"the launcher sets --{name}: {_OURS_OF_SRUN[name]}", hint="leave it out")
        elif name in seen:
            yield Problem(key=key, what=f"--{name} is given twice", hint="give it once")
        seen.add(name)


def _name(given: str) -> str:
    return given.replace("_", "-")


def _value(given: str | None) -> str | bool | None:
    return True if given in ("", "true") else given
