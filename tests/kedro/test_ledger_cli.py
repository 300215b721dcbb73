"""`kedro worldwise plan`, `lineage` and `sweep` on a stored data collection."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kedro.framework.startup import bootstrap_project

from worldwise.cli.texts import age, size
from worldwise.cli.worldwise import worldwise
from worldwise.ledger.manifest import InputEntry, Provenance, manifest_of, write_manifest
from worldwise.ledger.plan import ABSENT
from worldwise.ledger.runs import LiveRuns, RunEntry
from worldwise.ledger.workspace import WORK_FOLDER

Invoke = Callable[..., Result]
NODES = ("prepare_training_tasks", "prepare_base_model", "tune_format", "collect_episodes", "extract_transitions")


@pytest.fixture(scope="module")
def collected(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data root after a data collection."""
    root: Path = tmp_path_factory.mktemp("ledger") / "data"
    run("data_collection", root)
    return root


@pytest.fixture
def root(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return Path(shutil.copytree(collected, tmp_path / "data"))


@pytest.fixture
def invoke(project: Path, root: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`kedro worldwise ...` in process, on that root and with the model it was made with."""
    monkeypatch.chdir(project)
    metadata = bootstrap_project(project)
    given = f"data_root={root.as_posix()},model.name={tiny_folder.as_posix()},agent.restrict_to_admissible=true"

    def call(command: str, *arguments: str, params: str = "") -> Result:
        options = ["--env=test", f"--params={given}{params}"]
        return CliRunner().invoke(worldwise, [command, *options, *arguments], obj=metadata)

    return call


def _states(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    lines = [line.split(None, 2) for line in result.output.splitlines() if line.startswith(NODES)]
    return {line[0]: f"{line[1]} {line[2] if line[1] == 'stale' else ''}".strip() for line in lines}


def test_plan_tells_what_is_stale_and_why(invoke: Invoke, root: Path, tiny_folder: Path) -> None:
    plan = "--pipeline=data_collection"
    result = invoke("plan", plan)
    assert _states(result) == dict.fromkeys(NODES, "cached")
    assert "5 of 5 nodes are cached; --only-missing-outputs runs 0." in result.output
    assert "just now" in result.output or "ago" in result.output

    assert _states(invoke("plan", plan, params=",compute.threads=1,compute.workers=2")) == dict.fromkeys(
        NODES, "cached"
    ), "the number of threads and workers changes no result"

    states = _states(invoke("plan", plan, params=",collect.temperature=0.7"))
    assert states["collect_episodes"] == "stale parameter collect.temperature from 1.0 to 0.7"
    assert states["extract_transitions"] == "stale collected_episodes is made anew"
    assert {states[name] for name in NODES[:3]} == {"cached"}

    states = _states(invoke("plan", plan, "--all-reasons", params=",seed=1"))
    assert states["tune_format"] == "stale parameter seed from 0 to 1"
    assert states["collect_episodes"] == "stale base_model is made anew"

    shutil.rmtree(root / "06_models/household/base_model")
    states = _states(invoke("plan", plan))
    assert states["tune_format"] == "stale base_model is not stored"
    assert states["collect_episodes"] == "stale base_model is made anew"


def test_plan_of_an_unknown_pipeline_names_the_likely_one(invoke: Invoke) -> None:
    result = invoke("plan", "--pipeline=data_colection")
    assert result.exit_code == 2
    assert "did you mean data_collection?" in " ".join(result.output.split())


def test_lineage_goes_back_to_raw_data(invoke: Invoke, root: Path) -> None:
    result = invoke("lineage", "transitions", "--parameters")
    assert result.exit_code == 0, result.output
    for text in (
        "made by extract_transitions in run ",
        "  collected_episodes:",
        "    base_model:",
        "      pretrained_model:",
        "the model's folder: ",
        "collect.temperature = 1.0",
        ", commit ",
    ):
        assert text in result.output
    version = next((root / "06_models/household/base_model").iterdir())
    folder = version / "base_model"
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    write_manifest(folder, Provenance())
    assert f"base_model:{version.name}  is not what was read then" in invoke("lineage", "transitions").output
    shutil.rmtree(version)
    assert f"base_model:{version.name}  is gone" in invoke("lineage", "transitions").output
    assert "is no dataset that is kept in versions: use one of" in " ".join(invoke("lineage", "x").output.split())
    assert "no version of world_model is stored" in invoke("lineage", "world_model").output
    assert "transitions:2001 is not stored; there are: 2" in " ".join(
        invoke("lineage", "transitions:2001").output.split()
    )


def test_sweep_asks_and_removes(invoke: Invoke, root: Path) -> None:
    assert "Nothing to remove" in invoke("sweep").output
    (version,) = (root / "04_feature/household/transitions.parquet").iterdir()
    manifest_of(version / "transitions.parquet").unlink()
    result = invoke("sweep")
    assert result.exit_code == 1, "nobody answered"
    assert f"{version}  (unfinished: it has no manifest)" in result.output
    assert version.exists()
    result = invoke("sweep", "--yes")
    assert "Removed 1 of 1." in result.output
    assert not version.exists()
    assert "Nothing to remove" in invoke("sweep", "--keep=1").output


def test_plan_of_a_part_says_what_was_made_with_other_parameters(invoke: Invoke, root: Path) -> None:
    (version,) = (root / "04_feature/household/transitions.parquet").iterdir()
    part = "--pipeline=difficulty_subsampling"
    assert "other parameters" not in invoke("plan", part).output
    said = " ".join(invoke("plan", part, params=",collect.temperature=0.7").output.split())
    assert (
        f"transitions:{version.name} is read, which was made with other parameters than those of now: "
        f"collected_episodes:{version.name}, where parameter collect.temperature from 1.0 to 0.7."
    ) in said
    assert "run collect_episodes and what comes after it as well" in said


def test_lineage_names_the_run_in_mlflow_and_files_without_versions(invoke: Invoke, root: Path) -> None:
    (version,) = (root / "04_feature/household/transitions.parquet").iterdir()
    assert "MLflow run" not in invoke("lineage", "transitions").output, "nothing was tracked"
    files = {"labels": InputEntry(version="", digest="0123456789abcdef01"), "notes": ABSENT}
    made = Provenance(run_id=version.name, node="extract_transitions", key="abc", mlflow_run="a1b2c3", inputs=files)
    write_manifest(version / "transitions.parquet", made)
    result = invoke("lineage", "transitions")
    assert result.exit_code == 0, result.output
    assert f"made by extract_transitions in run {version.name}, MLflow run a1b2c3" in result.output
    assert "labels: a file 0123456789abcdef" in result.output
    assert "notes" not in result.output


def _unfinished(root: Path) -> Path:
    """A version whose run was killed before it was whole."""
    (version,) = (root / "04_feature/household/transitions.parquet").iterdir()
    manifest_of(version / "transitions.parquet").unlink()
    return version


def test_sweep_removes_nothing_once_a_run_has_begun(
    invoke: Invoke, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = _unfinished(root)
    runs = LiveRuns(root / WORK_FOLDER)
    # While the question waits for its answer.
    begin = RunEntry.of_this_process("2026-01-01T00.00.00.000Z", "kedro run")
    monkeypatch.setattr("click.confirm", lambda *_, **__: runs.enter(begin))
    result = invoke("sweep")
    assert result.exit_code == 1
    assert f"{begin} began meanwhile and may use what is listed: nothing was removed" in " ".join(result.output.split())
    assert version.exists()
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    result = invoke("sweep")
    assert f"At work: {begin}" in result.output
    assert "Removed 1 of 1." in result.output, "a run that was seen before the question was taken account of"
    assert not version.exists()
    runs.leave()


def test_sweep_leaves_what_came_into_use_meanwhile(invoke: Invoke, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = _unfinished(root)
    monkeypatch.setattr("click.confirm", lambda *_, **__: write_manifest(version / version.parent.name, Provenance()))
    result = invoke("sweep")
    assert result.exit_code == 0, result.output
    assert "1 of them came into use meanwhile and stay." in result.output
    assert "Removed 0 of 1." in result.output
    assert version.exists()


def test_sizes_and_ages_in_words() -> None:
    assert [size(count) for count in (0, 1023, 1536, 3 * 2**30, 2**41)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
        "2.0 TiB",
    ]
    from datetime import UTC, datetime

    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert age("2026-01-02T11:59:30+00:00", now) == "just now"
    assert age("2026-01-02T10:00:00+00:00", now) == "2 hours ago"
    assert age("2026-01-01T11:00:00+00:00", now) == "1 day ago"
    assert age("2026-01-03T00:00:00+00:00", now) == "in the future"
