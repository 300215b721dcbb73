"""What the tracker is told of a run, and that nothing on its side ends one."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import mlflow
import pytest
from kedro.framework.hooks import hook_impl
from mlflow.entities import Run

from tests.tracking.toy import begin_toy, first, run_toy, trains
from worldwise import settings
from worldwise.ledger.provenance import made_now, set_made
from worldwise.ledger.workspace import Workspace, set_workspace, workspace


def train(given: Any) -> dict[str, Any]:
    trains(3)
    return {"success": 0.5}


def found(database: Path) -> dict[str, Run]:
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("worldwise")
    assert experiment is not None
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def test_the_configuration_in_force_is_among_the_files(database: Path, tmp_path: Path) -> None:
    class Loader(dict[str, Any]):
        runtime_params: ClassVar = {"data_root": "/elsewhere"}

    catalog = {"train_made": {"type": "json.JSONDataset", "filepath": "/elsewhere/train_made.json"}}
    loader = Loader({"catalog": catalog, "globals": {"data_root": "data", "other": 1}})
    run_toy(tmp_path, [train], {"experiment": "with files beside the database"}, loader=loader)
    (folder,) = tmp_path.glob("mlartifacts/*/artifacts/config")
    written = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert written == {
        "parameters": {"toy.steps": 3},
        "catalog": catalog,
        "globals": {"data_root": "/elsewhere", "other": 1},
    }


def test_what_a_training_node_makes_is_known_by_its_fingerprint(database: Path, tmp_path: Path) -> None:
    set_made(made_now().model_copy(update={"key": "a digest of code, parameters and inputs"}))
    try:
        run_toy(tmp_path, [train])
        made = made_now()
    finally:
        set_made(None)
    child = found(database)["train"]
    assert child.data.tags["ledger.key"] == "a digest of code, parameters and inputs"
    assert made.mlflow_run == child.info.run_id, "and what is stored names the run"


def test_mlflow_sends_nothing_about_its_use(database: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "def train(given):\n"
        "    return {}\n"
        "run_toy(pathlib.Path(sys.argv[1]), [train])\n"
        "from mlflow.telemetry.client import get_telemetry_client\n"
        "from mlflow.telemetry.utils import is_telemetry_disabled\n"
        "print('telemetry', is_telemetry_disabled(), get_telemetry_client())\n"
    )
    with begin_toy(code, str(tmp_path)) as process:
        said, _ = process.communicate(timeout=250)
    assert "telemetry True None" in said, said
    assert "kedro-telemetry" in settings.DISABLE_HOOKS_FOR_PLUGINS


def test_no_room_for_temporary_files_costs_the_files_alone(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The first use of a database takes a lock in that folder.
    run_toy(tmp_path, [first])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        run_toy(tmp_path / "later", [train], {"tracking_uri": f"sqlite:///{database}"})
    assert [own.getMessage() for own in caplog.records if "takes no files" in own.getMessage()], caplog.text
    assert len([own for own in caplog.records if own.name == "worldwise.tracking.store"]) == 1
    assert {run.info.status for run in found(database).values()} == {"FINISHED"}


def test_a_result_that_vanishes_before_it_is_copied_stops_nothing(
    database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Vanishing:
        @hook_impl(tryfirst=True)
        def after_dataset_saved(self, dataset_name: str) -> None:
            path = next(tmp_path.glob(f"08_reporting/{dataset_name}.json/*/{dataset_name}.json"))
            path.rename(path.with_suffix(".gone"))

    def goes_away(given: Any) -> dict[str, Any]:
        return {}

    with caplog.at_level(logging.WARNING, logger="worldwise.tracking.store"):
        run_toy(tmp_path, [goes_away], hooks=[Vanishing()])
    assert found(database)["goes_away"].info.status == "FINISHED"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"no id of a run"])
def test_a_damaged_note_costs_the_earlier_run_alone(database: Path, tmp_path: Path, content: bytes) -> None:
    set_workspace(Workspace(tmp_path / "work", 0.0))
    own = workspace()
    assert own is not None
    own.folder.mkdir()
    note = own.folder / "mlflow_run"
    note.write_bytes(content)
    try:
        run_toy(tmp_path, [train])
    finally:
        set_workspace(None)
    child = found(database)["train"]
    assert child.info.status == "FINISHED"
    assert note.read_text() == child.info.run_id
