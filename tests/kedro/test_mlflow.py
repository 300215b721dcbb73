"""The MLflow hook on a toy pipeline: what is tracked, which status a run ends with, and that it never stops one."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline, node
from kedro.runner import SequentialRunner
from kedro_datasets.json import JSONDataset
from mlflow.entities import Run

from worldwise.config import FrozenConfig
from worldwise.hooks.interrupt import InterruptHooks
from worldwise.hooks.progress import ProgressHooks
from worldwise.tracking import store as store_module
from worldwise.tracking.config import MlflowConfig
from worldwise.tracking.flatten import flatten, numbers
from worldwise.tracking.hook import Curve, MlflowHooks
from worldwise.tracking.hook import _Run as _Tracked
from worldwise.tracking.interruption import RunInterrupted, interruptible
from worldwise.tracking.listeners import reporter
from worldwise.tracking.process import PROCESS, process_tags
from worldwise.tracking.runs import TrackedRun
from worldwise.tracking.store import TrackingStore

VERSION = "2026-01-01T00.00.00.000Z"


class Clip(FrozenConfig):
    low: float = 0.2


class Toy(FrozenConfig):
    steps: int = 3
    clip: Clip = Clip()


def _train(config: Toy) -> dict[str, float]:
    tell = reporter()
    for step in range(config.steps):
        tell.log({"loss": 1.0 / (step + 1), "nothing": float("nan")}, step)
        tell.progress(step + 1, config.steps, "")
    return {"success": 0.5}


def _train_slowly(config: Toy) -> dict[str, float]:
    found = _train(config)
    time.sleep(1.0)
    return found


def _explode(config: Toy) -> dict[str, float]:
    raise ValueError("boom")


def _interrupt(config: Toy) -> dict[str, float]:
    os.kill(os.getpid(), signal.SIGTERM)
    return {}


def _interrupt_what_tries_again(config: Toy) -> dict[str, float]:
    for _ in range(config.steps):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:
            continue
    return {}


def _report(metrics: dict[str, float]) -> dict[str, float]:
    return {"rounded": round(metrics["success"])}


def _run(project: Path, function: Callable[[Toy], dict[str, float]], mlflow_yml: dict[str, Any] | None = None) -> None:
    project.mkdir(exist_ok=True)
    config = mlflow_yml or {"tracking_uri": "sqlite:///tracking.db"}
    context = SimpleNamespace(config_loader={"mlflow": config}, project_path=project)
    pipeline = Pipeline(
        [
            node(function, "params:toy", "metrics", name="train", tags="train"),
            node(_report, "metrics", "summary", name="report"),
        ]
    )
    versioned = {"type": "json.JSONDataset", "versioned": True}
    catalog = DataCatalog.from_config(
        {
            name: {**versioned, "filepath": (project / "08_reporting" / f"{name}.json").as_posix()}
            for name in ("metrics", "summary")
        },
        save_version=VERSION,
    )
    catalog["params:toy"] = Toy()
    assert isinstance(catalog["metrics"], JSONDataset)
    manager = _create_hook_manager()
    _register_hooks(manager, (MlflowHooks(), ProgressHooks(), InterruptHooks()))
    run_params = {"run_id": VERSION, "env": "test", "pipeline_names": ["toy"]}
    arguments = {"run_params": run_params, "pipeline": pipeline, "catalog": catalog}
    manager.hook.after_context_created(context=context)
    manager.hook.before_pipeline_run(**arguments)
    try:
        result = SequentialRunner().run(pipeline, catalog, manager, VERSION)
    except Exception as error:
        manager.hook.on_pipeline_error(error=error, **arguments)
        raise
    manager.hook.after_pipeline_run(run_result=result, **arguments)


def _runs(project: Path) -> tuple[Run, Run]:
    """The parent and the child run."""
    client = mlflow.MlflowClient(f"sqlite:///{project}/tracking.db")
    experiment = client.get_experiment_by_name("worldwise")
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {f"toy {VERSION}", "train"}
    return runs[f"toy {VERSION}"], runs["train"]


def test_a_run_is_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    _run(tmp_path, _train)
    parent, child = _runs(tmp_path)
    assert parent.info.status == "FINISHED"
    assert parent.data.params == {"toy.steps": "3", "toy.clip.low": "0.2"}
    assert parent.data.tags["dataset.metrics"] == VERSION
    assert parent.data.tags["dataset.summary"] == VERSION
    assert parent.data.tags["kedro.env"] == "test"
    assert parent.data.metrics["metrics.success"] == 0.5
    assert child.info.status == "FINISHED"
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.params == parent.data.params, "what the node takes, here all there is"
    assert child.data.tags["dataset.metrics"] == VERSION
    assert child.data.tags["kedro.run_id"] == VERSION
    assert set(child.data.metrics) == {"loss"}
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/tracking.db")
    folders = ("config", "results")
    files = [own.path for name in folders for own in client.list_artifacts(parent.info.run_id, name)]
    assert sorted(files) == ["config/parameters.json", "results/metrics.json", "results/summary.json"]
    assert (tmp_path / "mlartifacts").is_dir(), "in the project, wherever the command was started"
    history = client.get_metric_history(child.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert not list(elsewhere.iterdir())


def test_a_failed_run_is_marked_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"):
        _run(tmp_path, _explode)
    assert [run.info.status for run in _runs(tmp_path)] == ["FAILED", "FAILED"]


def test_a_stop_is_not_taken_for_a_failure_that_play_survives(tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted, match="SIGTERM"):
        _run(tmp_path, interruptible(_interrupt_what_tries_again))
    assert [run.info.status for run in _runs(tmp_path)] == ["KILLED", "KILLED"]


def test_an_interrupted_run_is_marked_killed(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(RunInterrupted, match="SIGTERM"):
        _run(tmp_path, _interrupt)
    assert [run.info.status for run in _runs(tmp_path)] == ["KILLED", "KILLED"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_silent_server_warns_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        _run(tmp_path, _train, {"tracking_uri": "http://127.0.0.1:9", "timeout_s": 1})
    warnings = [record for record in caplog.records if record.name == "worldwise.tracking.store"]
    assert len(warnings) == 1
    assert "the run goes on without it" in warnings[0].getMessage()
    assert (tmp_path / "08_reporting/summary.json").is_dir()


def test_training_samples_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    _run(tmp_path, _train_slowly)
    parent, child = _runs(tmp_path)
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= set(child.data.metrics)
    assert not [name for name in parent.data.metrics if name.startswith("system/")]
    _run(tmp_path / "without", _train_slowly, {"tracking_uri": "sqlite:///tracking.db", "system_metrics": False})
    assert set(_runs(tmp_path / "without")[1].data.metrics) == {"loss"}


def test_a_locked_database_warns_once_and_slows_little(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another process holds it from the middle of training on."""
    holder = sqlite3.connect(tmp_path / "tracking.db", isolation_level=None, check_same_thread=False)

    def train_while_locked(config: Toy) -> dict[str, float]:
        holder.execute("BEGIN EXCLUSIVE")
        locked.append(time.monotonic())
        return _train(config.model_copy(update={"steps": 50}))

    locked: list[float] = []
    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        _run(tmp_path, train_while_locked, {"tracking_uri": "sqlite:///tracking.db", "timeout_s": 1})
    seconds = time.monotonic() - locked[0]
    holder.execute("ROLLBACK")
    assert len([record for record in caplog.records if record.name == "worldwise.tracking.store"]) == 1
    assert (tmp_path / "08_reporting/summary.json").is_dir()
    assert seconds < 12.0, "one wait of three seconds, not one of twenty for every call"


def test_a_database_that_is_deleted_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train_without(config: Toy) -> dict[str, float]:
        (tmp_path / "tracking.db").unlink()
        return _train(config)

    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        _run(tmp_path, train_without)
    assert len([record for record in caplog.records if record.name == "worldwise.tracking.store"]) == 1
    assert (tmp_path / "08_reporting/summary.json").is_dir()


def test_a_place_that_takes_no_files_costs_the_files_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlartifacts").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        _run(tmp_path, _train)
    assert len([record for record in caplog.records if record.name == "worldwise.tracking.store"]) == 1
    assert _runs(tmp_path)[0].data.metrics["metrics.success"] == 0.5


def test_tracking_can_be_switched_off(tmp_path: Path) -> None:
    _run(tmp_path, _train, {"enabled": False, "tracking_uri": "sqlite:///tracking.db"})
    assert not (tmp_path / "tracking.db").exists()


@pytest.mark.parametrize(
    ("uri", "absolute"),
    [
        ("sqlite:///mlflow.db", "sqlite:////project/mlflow.db"),
        ("sqlite:////elsewhere/mlflow.db", "sqlite:////elsewhere/mlflow.db"),
        ("http://server:5000", "http://server:5000"),
    ],
)
def test_the_store_does_not_depend_on_where_the_command_starts(uri: str, absolute: str) -> None:
    assert MlflowConfig(tracking_uri=uri).absolute_uri(Path("/project")) == absolute


def test_flat_names() -> None:
    assert flatten("a", {"b": {"c": 1, "d": [1, 2]}, "e": Clip()}) == {"a.b.c": 1, "a.b.d": [1, 2], "a.e.low": 0.2}
    assert numbers("m", {"by type": {"x=1": 2, "flag": True, "gone": float("inf"), "text": "t"}}) == {
        "m.by type.x_1": 2.0
    }


def test_what_is_not_stored_gets_no_version(tmp_path: Path) -> None:
    told: list[Any] = []
    hooks = MlflowHooks()
    kind = {"type": "worldwise.datasets.optional.OptionalJSONDataset", "versioned": True}
    catalog = DataCatalog.from_config(
        {name: {**kind, "filepath": (tmp_path / f"{name}.json").as_posix()} for name in ("absent", "stored")},
        save_version=VERSION,
    )
    catalog.save("stored", {"rows": []})
    store: Any = SimpleNamespace(tags=lambda run, tags: told.append(tags))
    hooks._run = _Tracked(store, "toy", {}, {}, {}, catalog, parent=TrackedRun(id="parent"))
    for name in ("absent", "stored"):
        hooks.after_dataset_loaded(dataset_name=name, data=catalog.load(name))
    assert [tags for tags in told if tags] == [{"dataset.stored": VERSION}]


def test_a_killed_nodes_run_goes_on_without_gaps_or_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = MlflowConfig(tracking_uri=f"sqlite:///{tmp_path.as_posix()}/runs.db")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    gone = {**process_tags(), PROCESS: f"{ended.pid} 0"}
    monkeypatch.setattr(store_module, "process_tags", lambda: gone)
    killed = TrackingStore(config, tmp_path)
    first = killed.open_run("first", {})
    begun = killed.open_run("train", {}, first)
    monkeypatch.undo()
    for step in (0, 1, 3):
        killed.metrics(begun, {"loss": float(step)}, step)
    killed.finish()
    before, child = first.id, begun.id
    assert before is not None
    assert child is not None
    later = TrackingStore(config, tmp_path)
    beside = later.open_run("beside", {})
    later.end_dead()
    after = later.open_run("second", {})
    resumed = later.open_run("train", {}, after, child)
    anew = later.open_run("train", {}, after, "0" * 32)
    curve = Curve(later, resumed)
    for step in range(5):
        curve.log({"loss": float(step)}, step)
    later.close_run(resumed, "FINISHED")
    later.finish()
    client = mlflow.MlflowClient(config.tracking_uri)
    assert resumed.id == child
    assert sorted(own.step for own in client.get_metric_history(child, "loss")) == [0, 1, 2, 3, 4]
    assert client.get_run(before).info.status == "KILLED"
    assert beside.id is not None
    assert client.get_run(beside.id).info.status == "RUNNING", "this process is alive"
    assert client.get_run(child).info.status == "FINISHED"
    assert client.get_run(child).data.tags["mlflow.parentRunId"] == after.id
    assert anew.id not in (None, child), "a run that is gone is made anew"
