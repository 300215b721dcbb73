"""What a run keeps of its tracking, and of its time, when the tracker goes away."""

from __future__ import annotations

import logging
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Run

from tests.tracking.toy import begin_toy, run_toy, trains
from worldwise.tracking import store as store_module
from worldwise.tracking.config import MlflowConfig
from worldwise.tracking.store import TrackingStore

LOCKED = """
import pathlib, sys, time
def train(given):
    trains(300)
    print("trained", time.time(), flush=True)
    return {}
run_toy(pathlib.Path(sys.argv[1]), [train], {"timeout_s": 1})
print("closed", time.time(), flush=True)
"""

STOPPED = """
import pathlib, sys, time
from kedro.framework.hooks import hook_impl
class Says:
    @hook_impl
    def on_pipeline_error(self):
        print("closes", flush=True)
def train(given):
    trains(3)
    print("trains", flush=True)
    time.sleep(600)
run_toy(pathlib.Path(sys.argv[1]), [train], {"timeout_s": 60}, [Says()])
"""


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Somebody has it meanwhile."""
    with closing(sqlite3.connect(database, timeout=60.0, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield


def runs(database: Path) -> dict[str, Run]:
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("worldwise")
    assert experiment is not None
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def steps(database: Path, run: Run) -> list[int]:
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    return sorted(point.step for point in client.get_metric_history(run.info.run_id, "loss"))


def until(line: str, process: Any) -> str:
    """Reads what a process says up to a line that begins so."""
    said = ""
    while True:
        found = process.stdout.readline()
        said += found
        assert found, f"it ended before it said {line!r}: {said}"
        if found.startswith(line):
            return str(found)


@pytest.mark.timeout(600)
def test_a_process_whose_database_is_locked_ends_soon_after_its_run(database: Path) -> None:
    """3 seconds of waiting and the interpreter's own end, which takes long on a busy machine.

    MLflow's own queue held the process for some 80 seconds with a tenth of the points.
    """
    with held(database), begin_toy(LOCKED, str(database.parent)) as process:
        trained = float(until("trained", process).split()[1])
        closed = float(until("closed", process).split()[1])
        process.wait(timeout=120)
    assert process.returncode == 0
    assert closed - trained < 20.0
    assert time.time() - closed < 40.0


@pytest.mark.timeout(600)
def test_a_second_ctrl_c_ends_a_process_that_waits_for_its_tracker(database: Path) -> None:
    with begin_toy(STOPPED, str(database.parent)) as process:
        until("trains", process)
        with held(database):
            process.send_signal(signal.SIGINT)
            until("closes", process)
            time.sleep(1.0)
            assert process.poll() is None, "it waits up to 121 seconds for the tracker"
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait(timeout=120)
    assert time.monotonic() - begun < 40.0
    assert process.returncode == -signal.SIGINT


def test_an_outage_in_the_middle_costs_nothing_once_it_is_over(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The database goes away while a node trains and comes back while the next one does."""
    away = database.with_name("away.db")

    def said() -> list[str]:
        return [own.getMessage() for own in caplog.records if own.name == "worldwise.tracking.store"]

    def before(given: Any) -> dict[str, Any]:
        trains(5)
        database.rename(away)
        database.mkdir()
        trains(5, first=5)
        limit = time.monotonic() + 120
        while not said() and time.monotonic() < limit:
            time.sleep(0.05)
        return {"success": 0.5}

    def after(given: Any) -> dict[str, Any]:
        trains(5)
        database.rmdir()
        away.rename(database)
        trains(5, first=5)
        return {}

    with caplog.at_level(logging.INFO, logger="worldwise.tracking.store"):
        run_toy(database.parent, [before, after])
    assert ["does not answer" in line for line in said()] == [True, False], said()
    assert "answers again" in said()[1]
    found = runs(database)
    assert {name: found[name].info.status for name in ("before", "after")} == {
        "before": "FINISHED",
        "after": "FINISHED",
    }
    for name in ("before", "after"):
        assert steps(database, found[name]) == list(range(10)), "all that it was told while it was away"
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    parent = client.get_run(found["after"].data.tags["mlflow.parentRunId"])
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["before_made.success"] == 0.5


def test_a_full_queue_drops_points_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "POINTS_KEPT", 1000)
    store = TrackingStore(MlflowConfig(tracking_uri="http://127.0.0.1:9", timeout_s=1), tmp_path)
    run = store.open_run("train", {})
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        for step in range(5000):
            store.metrics(run, {"loss": 1.0}, step)
    assert time.monotonic() - begun < 5.0, "who trains does not wait"
    assert len(run.points) == 1000
    assert caplog.text.count("curves have gaps") == 1
    store.finish()


def test_a_slow_server_costs_a_node_that_goes_on_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its curves are asked for one by one, which takes longer than any one answer may."""
    config = MlflowConfig(tracking_uri=f"sqlite:///{database}", timeout_s=1, system_metrics=False)
    killed = TrackingStore(config, database.parent)
    parent = killed.open_run("first", {})
    run = killed.open_run("train", {}, parent)
    for step in range(2):
        killed.metrics(run, {f"metric_{number}": 1.0 for number in range(12)}, step)
    killed.finish()
    answer = mlflow.MlflowClient.get_metric_history

    def slowly(client: mlflow.MlflowClient, run_id: str, key: str) -> Any:
        time.sleep(0.5)
        return answer(client, run_id, key)

    monkeypatch.setattr(mlflow.MlflowClient, "get_metric_history", slowly)
    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        later = TrackingStore(config, database.parent)
        goes_on = later.open_run("train", {}, later.open_run("second", {}), run.id)
        for step in range(4):
            later.metrics(goes_on, {f"metric_{number}": 1.0 for number in range(12)}, step)
        later.close_run(goes_on, "FINISHED")
        later.finish()
    monkeypatch.undo()
    assert not [own for own in caplog.records if own.name == "worldwise.tracking.store"]
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    assert run.id == goes_on.id
    for number in range(12):
        history = client.get_metric_history(str(run.id), f"metric_{number}")
        assert sorted(point.step for point in history) == [0, 1, 2, 3]
    assert client.get_run(str(run.id)).info.status == "FINISHED"
    assert client.get_run(str(parent.id)).info.status == "KILLED", "its node goes on elsewhere"
