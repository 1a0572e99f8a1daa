"""Each tracker records for real, offline, and goes on with the same run at the next attempt."""

import json
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from primus_hydra.config.build import dump_job
from primus_hydra.errors import HostError
from primus_hydra.run.metrics import read_metrics
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import StepMetrics
from primus_hydra.runtime.trackers import check, tracker_problems
from primus_hydra.runtime.trackers.label import flat_config, label_of
from primus_hydra.runtime.trackers.opening import open_metrics
from primus_hydra.runtime.trackers.status import read_tracker_status
from tests.support import job_tree, make_job

ROOT = Path(__file__).parents[3]


def job_with(**trackers):
    tree = job_tree({"run.name": "tiny", "run.group": "lab", "env": {"HF_TOKEN": "secret"}})
    for name, values in trackers.items():
        tree["tracker"][name] = {**tree["tracker"][name], "enable": True, **values}
    return make_job({"tracker": tree["tracker"], "run": tree["run"], "env": tree["env"]})


def attempt(job, paths, number, resume_from, last):
    sink = open_metrics(job, paths, attempt=number, restart=0, resume_from=resume_from)
    for step in range((resume_from or 0) + 1, last + 1):
        sink.log(StepMetrics(step=step, loss=10.0 * number + step, lr=1e-3, extra={"tokens": 64.0 * step}))
    sink.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Attempt 1 logs steps 1 to 4, attempt 2 goes on from the checkpoint at step 2 and logs steps 3 to 5."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("mlflow")
    wandb = pytest.importorskip("wandb")
    job = job_with(tensorboard={}, wandb={"offline": True}, mlflow={"experiment": "lab runs"})
    paths = RunPaths(tmp_path_factory.mktemp("trackers") / "run")
    with pytest.MonkeyPatch.context() as patch:
        # The tracker sets this variable by itself; naming it here makes the patch take it back afterwards.
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "")
        patch.delenv("MLFLOW_ALLOW_FILE_STORE")
        attempt(job, paths, 1, None, 4)
        attempt(job, paths, 2, 2, 5)
        wandb.teardown()
    assert [row["step"] for row in read_metrics(paths.metrics)] == [1, 2, 3, 4, 3, 4, 5]
    return paths


def test_tensorboard_shows_one_curve_without_the_steps_that_were_repeated(recorded):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(recorded.trackers / "tensorboard"))
    events.Reload()
    curve = [(event.step, event.value) for event in events.Scalars("loss")]
    assert curve == [(1, 11.0), (2, 12.0), (3, 23.0), (4, 24.0), (5, 25.0)]
    assert [event.step for event in events.Scalars("tokens")] == [1, 2, 3, 4, 5]


def wandb_records(path):
    """Read W&B's offline file: a header of 7 bytes, then a LevelDB log of protobuf records in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _checksum, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def test_wandb_offline_keeps_one_identity_over_attempts_and_takes_repeated_steps(recorded):
    files = sorted(recorded.trackers.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2
    runs, losses = [], []
    for path in files:
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "run" and record.run.display_name:
                runs.append((record.run.run_id, record.run.display_name, record.run.run_group))
            if record.WhichOneof("record_type") == "history":
                values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                losses.append((values["step"], values["loss"]))
    run_id = (recorded.trackers / "run_id").read_text().strip()
    assert set(runs) == {(run_id, "tiny", "lab")}
    assert losses == [(1, 11.0), (2, 12.0), (3, 13.0), (4, 14.0), (3, 23.0), (4, 24.0), (5, 25.0)]


def test_mlflow_goes_on_with_the_same_run(recorded, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=(recorded.trackers / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("lab runs")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("tiny", "FINISHED")
    assert run.data.tags["group"] == "lab"
    assert run.data.params["model.hidden_size"] == "64"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert sorted((entry.step, entry.value) for entry in history) == [
        (1, 11.0), (2, 12.0), (3, 13.0), (3, 23.0), (4, 14.0), (4, 24.0), (5, 25.0),
    ]  # fmt: skip


def test_the_run_says_where_each_tracker_can_be_seen(recorded):
    status = read_tracker_status(recorded.trackers)
    assert status["tensorboard"]["look"] == f"tensorboard --logdir {recorded.trackers / 'tensorboard'}"
    assert status["wandb"]["look"] == f"wandb sync {recorded.trackers / 'wandb'}/offline-run-*"
    assert "mlflow ui --backend-store-uri file://" in status["mlflow"]["look"]
    assert all("problem" not in entry for entry in status.values())


def test_no_tracker_learns_the_environment_of_the_job(recorded):
    assert not any(b"secret" in path.read_bytes() for path in recorded.trackers.rglob("*") if path.is_file())


def test_the_configuration_is_flat_and_complete():
    flat = flat_config(job_with())
    assert flat["training.steps"] == 4
    assert flat["platform.product_names"] == "[]"
    assert not any(key.startswith("env") for key in flat)


def test_two_runs_of_one_configuration_have_two_identities(tmp_path):
    job = job_with()
    one, other = (label_of(job, RunPaths(tmp_path / name / "tiny"), None) for name in "ab")
    assert one.run_id != other.run_id
    assert label_of(job, RunPaths(tmp_path / "a" / "tiny"), 3).run_id == one.run_id


def test_missing_packages_are_all_named_with_their_extra_before_anything_starts(monkeypatch):
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    problems = tracker_problems(job_with(wandb={}, mlflow={}))
    assert [problem.key for problem in problems] == ["tracker.wandb.enable", "tracker.mlflow.enable"]
    assert "pip install 'primus-hydra[wandb]'" in problems[0].hint
    assert tracker_problems(job_with()) == []


def test_a_package_that_is_missing_in_a_rank_is_an_error_of_the_host(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.delitem(sys.modules, "primus_hydra.runtime.trackers.mlflow", raising=False)
    with pytest.raises(HostError, match=r"primus-hydra\[mlflow\]"):
        open_metrics(job_with(mlflow={}), RunPaths(tmp_path), attempt=1, restart=0, resume_from=None)


def test_a_tracker_that_cannot_open_is_left_out_and_the_run_goes_on(tmp_path):
    (tmp_path / "file").write_text("in the way")
    job = job_with(mlflow={"tracking_uri": str(tmp_path / "file" / "store")})
    sink = open_metrics(job, RunPaths(tmp_path / "run"), attempt=1, restart=0, resume_from=None)
    sink.close()
    assert "did not open" in read_tracker_status(tmp_path / "run" / "trackers")["mlflow"]["problem"]


ONLINE = textwrap.dedent("""
    import sys
    from pathlib import Path
    from primus_hydra.config.build import load_job
    from primus_hydra.errors import HostError
    from primus_hydra.run.paths import RunPaths
    from primus_hydra.runtime.trackers.opening import open_metrics
    root = Path(sys.argv[1])
    try:
        open_metrics(load_job(root / "config.yaml"), RunPaths(root), attempt=1, restart=0, resume_from=None).close()
    except HostError as error:
        sys.exit(str(error))
""")


def open_online(tmp_path, **env):
    pytest.importorskip("wandb")
    (tmp_path / "config.yaml").write_text(dump_job(job_with(wandb={"offline": False})))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return subprocess.run(
        [sys.executable, "-c", ONLINE, str(tmp_path)],
        env={**kept, "HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc"), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_wandb_without_a_login_is_refused_with_the_ways_out(tmp_path):
    process = open_online(tmp_path)
    assert process.returncode == 1
    assert "tracker.wandb.offline=true" in process.stderr


@pytest.mark.slow
def test_wandb_records_offline_when_its_server_cannot_be_reached(tmp_path):
    process = open_online(tmp_path, WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="a" * 40, WANDB_INIT_TIMEOUT="2")
    assert process.returncode == 0, process.stderr
    assert "recorded offline" in process.stderr
    assert list(tmp_path.glob("trackers/wandb/offline-run-*/run-*.wandb"))


@pytest.fixture
def composed(tmp_path):
    (tmp_path / "top.yaml").write_text("defaults:\n  - tracker: none\n  - _self_\n")
    (tmp_path / "tracker").symlink_to(ROOT / "conf" / "tracker")

    def compose_with(*overrides):
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            return compose("top", overrides=list(overrides)).get("tracker") or {}

    return compose_with


def test_trackers_are_chosen_by_name_and_together(composed):
    assert composed() == {}
    assert composed("tracker=mlflow") == {"mlflow": {"enable": True}}
    assert composed("tracker=[tensorboard,wandb]") == {"tensorboard": {"enable": True}, "wandb": {"enable": True}}


def test_every_choice_begins_with_what_it_is_for_and_sets_keys_that_exist():
    known = job_tree()["tracker"]
    files = sorted((ROOT / "conf" / "tracker").glob("*.yaml"))
    assert [path.stem for path in files] == ["mlflow", "none", "tensorboard", "wandb"]
    for path in files:
        text = path.read_text()
        assert text.startswith("# ")
        for name, values in yaml.safe_load(text).items():
            assert set(values) <= set(known[name])
