"""The list of patches: what a run would decide, told without a run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from primus_hydra.config.composed import Composed
from primus_hydra.errors import HostError, UserError
from primus_hydra.patching import PatchContext, Registry, Selection
from primus_hydra.tasks import patches
from primus_hydra.tasks.patches import Patches, context_of, patch_rows
from tests.support import job_tree, make_job

CONTEXT = PatchContext(job=make_job(), backend="titan", backend_version="0.3.0", torch_version="2.14.1")


def needs_native(context: PatchContext) -> bool:
    """the native configuration asks for it"""
    return bool(context.native.wants)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    def declare(id: str, phase: Any, why: str = "Because.", **changes: Any) -> None:
        registry.register(id, backend="titan", phase=phase, why=why, **changes)(lambda context: None)

    declare("titan.late", "after_train", priority=1)
    declare("titan.native", "build_args", condition=needs_native)
    declare("titan.broken", "before_import", condition=needs_native)
    declare("titan.old", "before_import", versions=["<0.3", "torch<2.14"], tags=["cpu"], on_error="warn")
    declare("titan.device", "before_import", priority=10, why="Ranks [all of them] ask for CUDA.")
    declare("titan.any", "*")
    return registry


def test_patches_are_listed_in_the_order_of_a_run_each_with_its_status(registry: Registry) -> None:
    rows = patch_rows(CONTEXT, Selection(), registry)

    assert [(row.id, row.status) for row in rows] == [
        ("titan.any", "would apply"),
        ("titan.device", "would apply"),
        ("titan.broken", "failed"),
        ("titan.old", "skipped"),
        ("titan.native", "decided in the run"),
        ("titan.late", "would apply"),
    ]


def test_a_row_tells_the_versions_the_reason_and_why(registry: Registry) -> None:
    (row,) = [row for row in patch_rows(CONTEXT, Selection(), registry) if row.id == "titan.old"]

    assert row.versions == ("<0.3", "torch<2.14")
    assert row.reason == "titan 0.3.0 is not in <0.3; torch 2.14.1 is not in <2.14"
    assert (row.why, row.tags, row.on_error, row.priority) == ("Because.", ("cpu",), "warn", 50)


def test_a_patch_that_the_user_left_out_says_so(registry: Registry) -> None:
    rows = patch_rows(CONTEXT, Selection(disabled=("titan.d*",)), registry)

    (row,) = [row for row in rows if row.id == "titan.device"]
    assert (row.status, row.reason) == ("skipped", "patches.disabled has titan.d*")


def test_an_unknown_patch_id_is_refused_in_the_list_too(registry: Registry) -> None:
    with pytest.raises(UserError, match=r"patches\.disabled: 'titan\.devise' matches no registered patch"):
        patch_rows(CONTEXT, Selection(disabled=("titan.devise",)), registry)


@pytest.fixture
def run(registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the task over the registry above."""
    original = patch_rows
    monkeypatch.setattr(patches, "context_of", lambda job, environment: replace(CONTEXT, job=job))
    monkeypatch.setattr(patches, "patch_rows", lambda context, selection: original(context, selection, registry))
    monkeypatch.delenv("PRIMUS_PATCHES", raising=False)

    def run(format: Any) -> str:
        assert Patches(Patches.Options(format=format)).run(Composed(job=make_job(), tree=job_tree())) == 0
        return capsys.readouterr().out

    return run


def test_json_holds_the_versions_and_every_patch(run: Any) -> None:
    listed = json.loads(run("json"))

    assert (listed["backend"], listed["backend_version"], listed["torch_version"]) == ("titan", "0.3.0", "2.14.1")
    assert [row["id"] for row in listed["patches"]][:2] == ["titan.any", "titan.device"]


def test_the_table_shows_ids_status_and_why_as_they_are_written(run: Any) -> None:
    text = run("text")

    for part in ("titan 0.3.0, torch 2.14.1", "titan.device", "would apply", "[all of them]"):
        assert part in text


class Adapter:
    """A stand-in for an adapter of a checkout."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __call__(self, job: object) -> Adapter:
        return self

    def setup_backend_path(self) -> None:
        return None

    def detect_backend_version(self) -> str:
        if self.error:
            raise self.error
        return "9.9.9"


def use(monkeypatch: pytest.MonkeyPatch, adapter: Adapter) -> None:
    monkeypatch.setattr(patches, "load_target", lambda path, expected, key: adapter)


def test_an_installed_backend_is_known_from_its_metadata() -> None:
    context = context_of(make_job({"backend.name": "packaging"}), {})

    assert context.backend_version is not None
    assert context.stage == "pretrain"


@pytest.mark.parametrize(
    ("overrides", "environment"), [({"backend.path": "somewhere"}, {}), ({}, {"BACKEND_PATH": "somewhere"})]
)
def test_a_checkout_is_asked_through_its_adapter(
    overrides: dict[str, Any], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job({"backend.name": "packaging", **overrides})
    use(monkeypatch, Adapter())
    assert context_of(job, environment).backend_version == "9.9.9"

    use(monkeypatch, Adapter(HostError("no such checkout")))
    with pytest.raises(HostError, match="no such checkout"):
        context_of(job, environment)


def test_a_backend_that_is_nowhere_is_listed_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Adapter(HostError("missing")))

    assert context_of(make_job({"backend.name": "nobody_has_this"}), {}).backend_version is None


def test_listing_patches_imports_no_torch() -> None:
    script = (
        "import sys\n"
        "from tests.support import job_tree, make_job\n"
        "from primus_hydra.config.composed import Composed\n"
        "from primus_hydra.tasks.contract import make_task\n"
        "for name in ('patches.Patches', 'deps.Deps'):\n"
        "    task = make_task({'_target_': 'primus_hydra.tasks.' + name, 'format': 'json'})\n"
        "    task.run(Composed(job=make_job(), tree=job_tree()))\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'torchtitan')))\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert '"backend": "torchtitan"' in done.stdout
