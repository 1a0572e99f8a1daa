from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from primus_hydra.backends.megatron import versions
from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.megatron.versions import checkout_version, find_megatron, installable, release_for
from primus_hydra.errors import HostError, UserError
from tests.unit.backends.megatron.jobs import GPU, megatron_job


def make_checkout(root: Path, numbers: tuple[int, int, int] = (0, 16, 2), pre: str = "") -> Path:
    core = root / "megatron" / "core"
    core.mkdir(parents=True)
    lines = [f"{name} = {number}" for name, number in zip(("MAJOR", "MINOR", "PATCH"), numbers, strict=True)]
    (core / "package_info.py").write_text("\n".join(["# (c)", *lines, f"PRE_RELEASE = '{pre}'", "VERSION = ()"]))
    return root


def install(monkeypatch: pytest.MonkeyPatch, **packages: str) -> None:
    named = {name.replace("_", "-"): version for name, version in packages.items()}
    monkeypatch.setattr(versions, "installed_version", named.get)


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.16.1", "0.16"), ("0.16.2+local", "0.16"), ("0.17.0", "0.19"), ("0.18.1", "0.19"), ("0.19.2", "0.19")],
)
def test_a_supported_version_is_served(version: str, release: str) -> None:
    assert release_for(version).name == release


@pytest.mark.parametrize("version", ["0.15.3", "0.16.0", "0.20.0", "unknown"])
def test_an_unsupported_version_is_refused_with_what_pip_can_install(version: str) -> None:
    with pytest.raises(HostError, match=f"megatron-core {version} is not supported") as caught:
        release_for(version)
    (problem,) = caught.value.problems
    assert ">=0.16.1,<0.20" in problem.what
    assert problem.hint == installable().install_command


@pytest.mark.parametrize(("python", "tested"), [((3, 11), "0.16.1"), ((3, 12), "0.19.2"), ((3, 13), "0.19.2")])
def test_the_advised_version_is_one_that_this_python_can_install(
    python: tuple[int, int], tested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (*python, 1))
    assert installable().tested == tested


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, megatron_core="0.16.1", torch="2.5.1")
    with pytest.raises(HostError, match=r"needs torch >=2\.6, and torch 2\.5\.1 is installed"):
        find_megatron(None, {})


def test_a_missing_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, megatron_core="0.16.1")
    with pytest.raises(HostError, match="torch is missing"):
        find_megatron(None, {})


def test_the_configured_path_wins_over_the_environment_and_that_over_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, megatron_core="0.16.1", torch="2.14.1")
    ours, theirs = make_checkout(tmp_path / "ours"), make_checkout(tmp_path / "theirs", (0, 19, 0))
    environ = {"BACKEND_PATH": str(theirs)}
    found = find_megatron(str(ours), environ)
    assert (found.checkout, found.version) == (ours, "0.16.2")
    assert find_megatron(None, environ).checkout == theirs
    assert find_megatron(None, {}).checkout is None


@pytest.mark.parametrize("source", ["backend.path", "BACKEND_PATH"])
def test_a_named_checkout_must_exist(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, megatron_core="0.16.1", torch="2.14.1")
    path, environ = (str(tmp_path), {}) if source == "backend.path" else (None, {source: str(tmp_path)})
    with pytest.raises(UserError) as caught:
        find_megatron(path, environ)
    assert caught.value.problems[0].key == source


def test_the_third_party_folder_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = make_checkout(tmp_path / "Megatron-LM")
    environ = {"PRIMUS_THIRDPARTY_DIR": str(tmp_path)}
    install(monkeypatch, megatron_core="0.16.1", torch="2.14.1")
    assert find_megatron(None, environ).checkout is None
    install(monkeypatch, torch="2.14.1")
    assert find_megatron(None, environ).checkout == checkout


def test_nothing_found_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1")
    with pytest.raises(HostError, match="megatron-core is not installed"):
        find_megatron(None, {})


@pytest.mark.parametrize(("pre", "version"), [("", "0.16.2"), ("rc0", "0.16.2rc0")])
def test_a_checkout_states_its_version(pre: str, version: str, tmp_path: Path) -> None:
    assert checkout_version(make_checkout(tmp_path, pre=pre)) == version


def test_a_checkout_without_numbers_states_none(tmp_path: Path) -> None:
    (make_checkout(tmp_path) / "megatron" / "core" / "package_info.py").write_text("MAJOR = 0\n")
    assert checkout_version(tmp_path) is None


def test_the_installed_core_states_the_version_that_its_metadata_has() -> None:
    spec = importlib.util.find_spec("megatron")
    assert spec is not None
    assert spec.submodule_search_locations
    site = Path(next(iter(spec.submodule_search_locations))).parent
    assert checkout_version(site) == find_megatron(None, {}).version


def test_a_checkout_goes_in_front_of_the_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1")
    monkeypatch.setattr("sys.path", ["somewhere"])
    checkout = make_checkout(tmp_path)
    adapter = MegatronAdapter(megatron_job({"backend.path": str(checkout)}))
    assert adapter.setup_backend_path() == checkout
    assert adapter.setup_backend_path() == checkout
    assert sys.path == [str(checkout), "somewhere"]
    assert adapter.detect_backend_version() == "0.16.2"


def test_a_bad_checkout_is_one_of_the_problems(tmp_path: Path) -> None:
    adapter = MegatronAdapter(megatron_job({"backend.path": str(tmp_path), "parallel.sharding": "full"}))
    assert {problem.key for problem in adapter.problems()} == {"backend.path", "parallel.sharding"}


def test_an_unknown_stage_has_no_trainer() -> None:
    with pytest.raises(UserError, match="no training stage"):
        MegatronAdapter(megatron_job()).load_trainer_class("pretrian")


@pytest.mark.parametrize(
    ("overrides", "one_queue"),
    [
        ({}, False),
        ({"parallel.tp": 2}, True),
        ({"parallel.cp": 2, "data.document_mask": False}, True),
        ({"parallel.tp": 2, "platform.arch": "sm_100"}, False),
        ({"parallel.tp": 2, "platform.arch": "sm_120"}, False),
        ({"parallel.tp": 2, "platform.vendor": "amd", "platform.arch": "gfx942"}, True),
    ],
)
def test_kernels_start_in_launch_order_where_megatron_asks_for_it(
    overrides: dict[str, object], one_queue: bool
) -> None:
    environment = MegatronAdapter(megatron_job({**GPU, **overrides})).env_defaults()
    assert (environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1") is one_queue


def test_a_deterministic_gpu_run_pins_its_libraries() -> None:
    assert MegatronAdapter(megatron_job({**GPU, "training.deterministic": True})).env_defaults()["NCCL_ALGO"] == "Ring"
    assert "NCCL_ALGO" not in MegatronAdapter(megatron_job({"training.deterministic": True})).env_defaults()


def test_gpu_layers_need_transformer_engine_unless_plain_ones_are_chosen() -> None:
    (problem,) = MegatronAdapter(megatron_job(GPU)).missing_packages()
    assert "transformer_engine" in problem.what
    plain = {"backend.config": {"model": {"layer_implementation": "local"}}}
    assert MegatronAdapter(megatron_job({**GPU, **plain})).missing_packages() == []
    assert MegatronAdapter(megatron_job()).missing_packages() == []


def test_megatron_is_imported_without_notices_but_with_other_warnings() -> None:
    code = (
        "import warnings, logging; from tests.unit.backends.megatron.jobs import megatron_job; "
        "from primus_hydra.backends.megatron.adapter import MegatronAdapter; "
        "adapter = MegatronAdapter(megatron_job()); adapter.problems(); adapter.missing_packages(); "
        "import sys; assert not {'torch', 'megatron'} & set(sys.modules), 'imported too early'; "
        "adapter.prepare_backend(); warnings.warn('heard'); logging.warning('logged')"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert [line for line in run.stderr.splitlines() if "heard" in line or "logged" in line]
    assert not [line for line in run.stderr.splitlines() if "Apex" in line or "CUDA" in line], run.stderr
