"""The steps of `task=migrate`: read, account, write, plan."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from primus_hydra.config.compose import Request, compose, loose_tree
from primus_hydra.config.composed import Composed
from primus_hydra.config.instantiate import TARGET, load_target
from primus_hydra.config.options import all_folders, group_options
from primus_hydra.config.resolve import flatten
from primus_hydra.errors import PrimusError, Problem, UserError
from primus_hydra.migrate.ledger import Ledger, Setting
from primus_hydra.migrate.megatron_arguments import read_arguments
from primus_hydra.migrate.migration import Framework, migrate
from primus_hydra.migrate.overrides import words_of
from primus_hydra.migrate.primus_file import Presets, read_experiment
from primus_hydra.migrate.recipe import Kind, Recipe
from primus_hydra.migrate.report import Report, as_json, as_markdown, as_text
from primus_hydra.migrate.runner_file import is_runner, read_runner
from primus_hydra.migrate.titan_file import read_function, read_toml
from primus_hydra.migrate.writing import experiment_text
from primus_hydra.migrate.yaml_file import read_yaml
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.tasks.plan_view import plan_job
from primus_hydra.ui.output import print_json, print_lines, printable

if TYPE_CHECKING:
    from primus_hydra.tasks.migrate import Migrate

_DEFAULT_BACKENDS: Final = {"megatron": "megatron", "torchtitan": "torchtitan"}
_ABSENT: Final = object()


def migrate_recipe(options: Migrate.Options, composed: Composed) -> Report:
    """Read a recipe, write its experiment file, and plan it; raises UserError with what keeps it from being read."""
    output = _output(options)
    recipe, runner = _read(options)
    framework = None if recipe.kind == "runner" else _framework(recipe, options.backend)
    ledger = migrate(recipe, framework, runner)
    _choose_platform(ledger, recipe, options, composed)
    desk = _Desk(typed=_started_on_nodes(ledger, _typed(composed, ledger)))
    settings = _without_equal(recipe.title, ledger, desk)
    text = experiment_text(recipe.title, ledger.choices, settings)
    refused, missing = _planned(text, desk, only_composed=framework is None)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    return Report(
        title=recipe.title,
        output=str(output) if output else None,
        entries=tuple(ledger.entries[name] for name in ledger.given),
        filled=tuple(key for key, setting in settings.items() if not setting.explicit),
        notes=tuple(dict.fromkeys(ledger.notes)),
        planned=framework is not None,
        refused=tuple(refused),
        missing=tuple(missing),
        experiment=text,
    )


def print_report(report: Any, form: str) -> None:
    """Print the report, and the experiment where it went to no file."""
    if form == "json":
        print_json(as_json(report))
    elif form == "markdown":
        print_lines(as_markdown(report))
    elif report.output is None:
        print(printable(report.experiment), end="", flush=True)
        print("\n".join(as_text(report)), file=sys.stderr)
    else:
        print_lines(as_text(report))


def _output(options: Migrate.Options) -> Path | None:
    if options.output is None:
        return None
    output = Path(options.output).expanduser()
    problem = None
    if output.suffix not in (".yaml", ".yml"):
        problem = Problem(key="task.output", what=f"{output} is no name of an experiment", hint="end it in .yaml")
    elif output.is_dir() or (output.exists() and not options.overwrite):
        problem = Problem(key="task.output", what=f"{output} is there already", hint="task.overwrite=true replaces it")
    if problem is not None:
        raise UserError(problem)
    return output


def _read(options: Migrate.Options) -> tuple[Recipe, Recipe | None]:
    words = words_of(options.arguments)
    if options.path is None:
        if not words:
            what, hint = "names no recipe", "task.path=FILE, or task.arguments=\"'--num-layers 32 ...'\""
            raise UserError(Problem(key="task.path", what=what, hint=hint))
        return _arguments(" ".join(map(_quoted, words)), "task.arguments", options.backend), None
    path = Path(options.path).expanduser()
    runner = read_runner(Path(options.runner).expanduser(), os.environ) if options.runner else None
    match _kind(path, options.source):
        case "runner":
            return read_runner(path, os.environ), None
        case "primus":
            root = Path(options.presets).expanduser() if options.presets else None
            if root is not None and not root.is_dir():
                raise UserError(Problem(key="task.presets", what=f"there is no folder {root}"))
            return read_experiment(path, Presets(root=root, environment=os.environ), words), runner
        case "torchtitan":
            return (read_function(path, options.function) if path.suffix == ".py" else read_toml(path)), runner
    text = path.read_text(encoding="utf-8-sig")
    extra = " ".join(map(_quoted, words))
    return _arguments(f"{text}\n{extra}", path.name, options.backend), runner


def _kind(path: Path, source: str) -> Kind:
    if not path.is_file():
        what = f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}"
        raise UserError(Problem(key="task.path", what=what, hint=f"looked in {Path.cwd()}"))
    if source in ("primus", "runner", "megatron", "torchtitan"):
        return source  # type: ignore[return-value]
    if path.suffix in (".toml", ".py"):
        return "torchtitan"
    if path.suffix not in (".yaml", ".yml"):
        return "megatron"
    names = set(read_yaml(path, _AnyVariable()).tree)
    if is_runner(names):
        return "runner"
    if "modules" in names or "extends" in names:
        return "primus"
    what = (
        f"{path.name} is neither an experiment (it has no modules) nor a runner file (main, slurm, container, direct)"
    )
    raise UserError(Problem(key="task.path", what=what, hint="say what it is: task.source=primus"))


class _AnyVariable(dict[str, str]):
    """An environment in which every variable is set: enough to look at the names in a file."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return ""


def _arguments(text: str, title: str, backend: str | None) -> Recipe:
    vocabulary = _vocabulary(backend or _DEFAULT_BACKENDS["megatron"]).vocabulary
    return read_arguments(text, vocabulary, title=title, environment=os.environ)


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./$-]+", word) else "'" + word.replace("'", "'\"'\"'") + "'"


def _framework(recipe: Recipe, backend: str | None) -> Framework:
    framework = recipe.framework or ""
    chosen = backend or _DEFAULT_BACKENDS.get(framework, framework)
    found = _vocabulary(chosen)
    if framework in _DEFAULT_BACKENDS and not found.backend.startswith(framework):
        what = f"the recipe is {framework}'s, whose keys are not those of backend={chosen}"
        raise UserError(Problem(key="task.backend", what=what, hint=f"leave it out, or name one of {framework}'s"))
    return found


def _vocabulary(backend: str) -> Framework:
    """Return the keys of a backend; raises UserError for one that is not here, or takes no recipes."""
    options = {option.name: option for option in group_options(all_folders()).get("backend", [])}
    taking: dict[str, Framework] = {}
    for name, option in options.items():
        target = (yaml.safe_load(option.file.read_text(encoding="utf-8-sig")) or {}).get(TARGET)
        adapter = load_target(str(target), BackendAdapter, key="backend._target_")  # type: ignore[type-abstract]
        vocabulary = adapter.vocabulary()
        if vocabulary is not None:
            taking[name] = Framework(backend=name, vocabulary=vocabulary)
    if backend not in taking:
        what = f"no backend here trains what {backend or 'nothing'} trains"
        raise UserError(Problem(key="task.path", what=what, hint=f"recipes of {', '.join(sorted(taking))} are taken"))
    return taking[backend]


def _choose_platform(ledger: Ledger, recipe: Recipe, options: Migrate.Options, composed: Composed) -> None:
    """Name the platform: what the command says, else what a folder of the recipe's path is called."""
    if not composed.platform_detected:
        ledger.choices["platform"] = str(composed.choices.get("platform"))
        return
    known = {option.name for option in group_options(all_folders()).get("platform", [])} - {"auto", "cpu"}
    folders = [part.lower() for part in Path(options.path or "").parts[:-1]]
    found = next((folder for folder in reversed(folders) if folder in known), None)
    if found:
        ledger.choices["platform"] = found
    elif recipe.kind != "runner":
        ledger.notes.append("no platform is named: the result is planned for this machine; name one with platform=")


def _typed(composed: Composed, ledger: Ledger) -> list[str]:
    """Return what the command says beside the task, which holds for the result too, and the platform."""
    words = [word for word in composed.overrides if not word.startswith(("task=", "task.", "experiment=", "platform="))]
    return [*words, f"platform={ledger.choices['platform']}"] if "platform" in ledger.choices else words


def _started_on_nodes(ledger: Ledger, typed: list[str]) -> list[str]:
    """Plan several nodes for Slurm, as no plan of one machine can start them, and say so."""
    nodes = ledger.settings.get("launch.nodes")
    if nodes is None or nodes.value == 1 or "platform" not in ledger.choices:
        return typed
    if any(word.startswith("hydra/launcher=") for word in typed):
        return typed
    ledger.notes.append(f"{nodes.value} nodes: start it with hydra/launcher=submitit, as it is planned here")
    return [*typed, "hydra/launcher=submitit"]


def _without_equal(title: str, ledger: Ledger, desk: _Desk) -> dict[str, Setting]:
    """Leave out what is only a default of the other launcher and stands so here anyway."""
    explicit = {key: setting for key, setting in ledger.settings.items() if setting.explicit}
    with desk.laid(experiment_text(title, ledger.choices, explicit)) as request:
        try:
            ours = flatten(loose_tree(request))
        except UserError:
            ours = {}
    return {
        key: setting
        for key, setting in ledger.settings.items()
        if setting.explicit or setting.value != ours.get(key, _ABSENT)
    }


@dataclass(frozen=True, kw_only=True)
class _Desk:
    """Where experiments are laid to be composed, with what the command says beside them."""

    typed: list[str]

    @contextmanager
    def laid(self, text: str) -> Iterator[Request]:
        """Put the text into a file for a while, and give the request that composes it."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "experiment.yaml")
            file.write_text(text, encoding="utf-8")
            yield Request(overrides=[f"experiment={file}", *self.typed])


def _planned(text: str, desk: _Desk, *, only_composed: bool) -> tuple[list[Problem], list[Problem]]:
    """Compose and plan the experiment; return what is refused, and which paths are not on this machine.

    A runner file is no job of its own: it is composed only.
    """
    with desk.laid(text) as request:
        place = request.overrides[0].partition("=")[2]
        try:
            composed = compose(request)
        except UserError as error:
            return [_without_place(problem, place) for problem in error.problems], []
    found = [] if only_composed else _refused(composed)
    refused = _refused(_trusting(composed)) if found else []
    return refused, [problem for problem in found if problem not in refused]


def _refused(composed: Composed) -> list[Problem]:
    try:
        return list(plan_job(composed).standing.problems)
    except PrimusError as error:
        return list(error.problems)


def _trusting(composed: Composed) -> Composed:
    """Return the job with its paths taken on trust, as they may be on the nodes only."""
    launch = replace(composed.job.launch, check_paths=False)
    return replace(composed, job=replace(composed.job, launch=launch))


def _without_place(problem: Problem, file: str) -> Problem:
    """Drop the place in a file that is gone when the problem is read."""
    return replace(problem, where=None) if problem.where and file in problem.where else problem
