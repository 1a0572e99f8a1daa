"""MLflow, in files below the run directory or on a tracking server; attempts go on in the same MLflow run."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import StepMetrics
from primus_hydra.runtime.sinks import InBackground, Tracker, values_of
from primus_hydra.runtime.trackers.label import RunLabel

_RUN_TAG = "primus_hydra.run_id"
_PARAMS_PER_CALL = 100


class MlflowTracker(Tracker):
    """One MLflow run, found again by its tag; calls block until the store has answered."""

    name = "mlflow"

    def __init__(self, job: JobConfig, label: RunLabel) -> None:
        uri = job.tracker.mlflow.tracking_uri or (label.folder / "mlflow").absolute().as_uri()
        if _is_file_store(uri):
            # MLflow keeps its file store behind this switch; the alternative is a database package per rank.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(tracking_uri=uri)
        self._experiment = _experiment(self._client, job.tracker.mlflow.experiment)
        self._run_id = _find_run(self._client, self._experiment, label) or _create_run(
            self._client, self._experiment, label
        )
        self._log_params(label)
        self.look = _look(uri, self._run_id)

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""
        now_ms = int(time.time() * 1000)
        values = values_of(metrics)
        self._client.log_batch(
            self._run_id, metrics=[Metric(name, value, now_ms, metrics.step) for name, value in values.items()]
        )

    def close(self, *, failed: bool = False) -> None:
        """Mark the MLflow run as ended."""
        self._client.set_terminated(self._run_id, status="FAILED" if failed else "FINISHED")

    def _log_params(self, label: RunLabel) -> None:
        # MLflow refuses a changed parameter, so those of the first attempt stay.
        known = self._client.get_run(self._run_id).data.params
        fresh = [Param(key, str(value)) for key, value in label.config.items() if key not in known]
        for batch in _batches(fresh):
            self._client.log_batch(self._run_id, params=batch)


def open_mlflow(job: JobConfig, label: RunLabel) -> tuple[Tracker, str]:
    """Open the MLflow run; return the tracker, in a thread of its own, and where to look."""
    tracker = MlflowTracker(job, label)
    return InBackground(tracker), tracker.look


def _is_file_store(uri: str) -> bool:
    return uri.startswith("file:") or ("://" not in uri and not uri.startswith("databricks"))


def _look(uri: str, run_id: str) -> str:
    if uri.startswith(("http", "databricks")):
        return f"{uri} (run {run_id})"
    switch = "MLFLOW_ALLOW_FILE_STORE=true " if _is_file_store(uri) else ""
    return switch + shlex.join(["mlflow", "ui", "--backend-store-uri", uri])


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id) if found else str(client.create_experiment(name))


def _find_run(client: MlflowClient, experiment: str, label: RunLabel) -> str | None:
    runs = client.search_runs([experiment], filter_string=f"tags.`{_RUN_TAG}` = '{label.run_id}'", max_results=1)
    if not runs:
        return None
    run_id = str(runs[0].info.run_id)
    client.update_run(run_id, status="RUNNING")
    return run_id


def _create_run(client: MlflowClient, experiment: str, label: RunLabel) -> str:
    tags = {_RUN_TAG: label.run_id, "group": label.group, "mlflow.user": label.user}
    chosen = {name: text for name, text in tags.items() if text}
    return str(client.create_run(experiment, tags=chosen, run_name=label.name).info.run_id)


def _batches(params: list[Param]) -> Iterator[list[Param]]:
    for start in range(0, len(params), _PARAMS_PER_CALL):
        yield params[start : start + _PARAMS_PER_CALL]
