"""What is wanted and what is installed, and the exit code that follows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from primus_hydra.config.composed import Composed
from primus_hydra.errors import HostError
from primus_hydra.host import packages
from primus_hydra.host.packages import Dependency, checkout_commit, dependencies_of, installed_version
from primus_hydra.tasks.deps import Deps, dependency_groups
from tests.support import job_tree, make_job

REQUIREMENTS = [
    Requirement(line)
    for line in (
        "hydra-core>=1.3.8,<1.4",
        'tomli; python_version < "3"',
        'torchtitan==0.3.0; extra == "torchtitan"',
        'torch>=2.14,<2.15; extra == "torchtitan"',
        'ancient; python_version < "3" and extra == "torchtitan"',
        'wandb>=0.19; extra == "wandb"',
        'primus-hydra[torchtitan,wandb]; extra == "dev"',
        'pytest; extra == "dev"',
    )
]
EXTRAS = ["torchtitan", "wandb", "dev"]
COMPLETE = {"hydra-core": "1.3.8", "torchtitan": "0.3.0", "torch": "2.14.1+cu130"}


def names(extra: str | None) -> list[str]:
    return [dependency.name for dependency in dependencies_of(REQUIREMENTS, extra, installed=lambda name: None)]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (None, ["hydra-core"]),
        ("torchtitan", ["torchtitan", "torch"]),
        ("wandb", ["wandb"]),
        ("dev", ["torchtitan", "torch", "wandb", "pytest"]),
        ("unknown", []),
    ],
)
def test_an_extra_wants_its_own_packages(extra: str | None, expected: list[str]) -> None:
    assert names(extra) == expected


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (None, "missing"),
        ("2.14.1", "ok"),
        ("2.14.1+cu130", "ok"),
        ("2.13.0", "wrong"),
        ("2.15.0.dev20260101", "wrong"),
        ("2.14.0rc1", "wrong"),
        ("weird", "wrong"),
    ],
)
def test_a_version_is_judged_as_pip_judges_it(version: str | None, status: str) -> None:
    (found,) = dependencies_of([Requirement("torch>=2.14,<2.15")], None, installed=lambda name: version)

    assert found == Dependency(name="torch", wanted=">=2.14,<2.15", installed=version, status=status)


def test_the_core_and_the_chosen_backends_extra_are_needed() -> None:
    groups = dependency_groups(REQUIREMENTS, EXTRAS, "torchtitan", everything=False, installed=COMPLETE.get)

    assert [(group.name, group.needed, group.complete) for group in groups] == [
        ("core", True, True),
        ("torchtitan", True, True),
    ]
    assert groups[1].install == 'pip install "primus-hydra[torchtitan]"'


def test_every_extra_can_be_shown_and_the_others_are_not_needed() -> None:
    groups = dependency_groups(REQUIREMENTS, EXTRAS, "torchtitan", everything=True, installed=COMPLETE.get)

    assert [(group.name, group.needed, group.complete) for group in groups] == [
        ("core", True, True),
        ("torchtitan", True, True),
        ("wandb", False, False),
        ("dev", False, False),
    ]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the task over the requirements above, with the given packages installed."""

    def run(installed: dict[str, str], backend: str = "torchtitan", **options: Any) -> tuple[int, str]:
        monkeypatch.setattr("primus_hydra.tasks.deps.project_requirements", lambda: REQUIREMENTS)
        monkeypatch.setattr("primus_hydra.tasks.deps.project_extras", lambda: EXTRAS)
        original = dependency_groups
        monkeypatch.setattr(
            "primus_hydra.tasks.deps.dependency_groups",
            lambda *args, **kwargs: original(*args, **kwargs, installed=installed.get),
        )
        overrides = {"backend.name": backend}
        composed = Composed(job=make_job(overrides), tree=job_tree(overrides))
        code = Deps(Deps.Options(**options)).run(composed)
        monkeypatch.undo()
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("changes", "code"),
    [({}, 0), ({"torch": None}, 3), ({"torch": "2.13.0"}, 3), ({"hydra-core": None}, 3), ({"wandb": None}, 0)],
)
def test_the_exit_code_tells_whether_the_chosen_backend_can_run(changes: dict[str, Any], code: int, run: Any) -> None:
    assert run({**COMPLETE, **changes}, all=True)[0] == code


def test_the_table_names_what_is_wrong_and_the_command(run: Any) -> None:
    _, text = run({**COMPLETE, "torch": "2.13.0"})

    (row,) = [line for line in text.splitlines() if "2.13.0" in line]
    assert ">=2.14,<2.15" in row
    assert "wrong" in row
    assert 'torchtitan (needed by torchtitan): pip install "primus-hydra[torchtitan]"' in text


def test_json_holds_every_row(run: Any) -> None:
    code, text = run({"hydra-core": "1.3.8"}, format="json")

    groups = {group["name"]: group for group in json.loads(text)["groups"]}
    assert code == 3
    assert [dependency["status"] for dependency in groups["torchtitan"]["dependencies"]] == ["missing", "missing"]
    assert groups["core"]["complete"] is True


def test_a_backend_without_an_extra_needs_the_core_alone(run: Any) -> None:
    code, text = run(COMPLETE, backend="mine")

    assert code == 0
    assert "no extra for backend mine" in text


def test_the_projects_own_metadata_has_an_extra_for_torchtitan() -> None:
    requirements = packages.project_requirements()

    wanted = [item.name for item in packages.requirements_of(requirements, "torchtitan")]
    assert wanted == ["torchtitan", "torch"]
    assert "torchtitan" in packages.project_extras()


def test_without_metadata_the_project_says_that_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PROJECT", "a-project-that-nobody-has")

    with pytest.raises(HostError, match="not installed"):
        packages.project_requirements()


def test_installed_versions_come_from_metadata() -> None:
    assert installed_version("packaging")
    assert installed_version("a-package-that-nobody-has") is None


def test_the_commit_of_a_pip_install_from_git_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "titanx-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: titanx\nVersion: 1.0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    assert packages.installed_commit("titanx") is None
    (info / "direct_url.json").write_text('{"url": "u", "vcs_info": {"vcs": "git", "commit_id": "73a0e69"}}')
    assert packages.installed_commit("titanx") == "73a0e69"
    assert packages.installed_commit("a-package-that-nobody-has") is None


def test_the_commit_of_a_checkout_is_read_with_git(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", "-C", tmp_path, *identity, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet")
    assert checkout_commit(tmp_path) is None

    git("commit", "--quiet", "--allow-empty", "--message", "first")
    assert checkout_commit(tmp_path) == git("log", "-1", "--format=%H")
    assert checkout_commit(tmp_path / "absent") is None
