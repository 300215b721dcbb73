"""Folders that cannot be written, and disks that are too small, are named before anything runs."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kedro.config import OmegaConfigLoader
from kedro.framework.session import KedroSession
from kedro.io import DataCatalog

from worldwise.generation.models import ModelConfig, resolve_model
from worldwise.ledger.publish import folder_size
from worldwise.pipeline_registry import register_pipelines
from worldwise.pipelines.errors import InputError
from worldwise.pipelines.parameters import validated
from worldwise.pipelines.room import STATE_MODELS, bytes_needed, check_room, model_bytes, state_bytes
from worldwise.pipelines.storage import check_storage

PIPELINE = register_pipelines()["policy_rl"]

Loader = Callable[..., OmegaConfigLoader]
Check = Callable[[Path | str], list[str]]


@pytest.fixture
def blocks(loader: Loader, tiny_folder: Path) -> dict[str, Any]:
    return validated(loader("test", model={"name": tiny_folder.as_posix()})["parameters"])


@pytest.fixture
def check(project: Path, blocks: dict[str, Any]) -> Check:
    """The findings for a run that trains a policy below a data root."""

    def findings(root: Path | str) -> list[str]:
        return list(check_room(PIPELINE, _catalog(project, root), blocks, str(root)))

    return findings


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR, not there yet."""
    folder = tmp_path / "tmp"
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def _catalog(project: Path, root: Path | str) -> DataCatalog:
    params = {"data_root": str(root)}
    with KedroSession.create(project, save_on_close=False, env="test", runtime_params=params) as session:
        assert isinstance(session, KedroSession)
        return session.load_context().catalog


def test_a_new_data_root_is_fine_and_is_not_made_by_looking(check: Check, tmp_path: Path) -> None:
    assert check(tmp_path / "new" / "data") == []
    assert not (tmp_path / "new").exists()


def test_a_data_root_that_cannot_be_made_is_named(check: Check, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        (finding,) = check(root)
        assert f"parameter data_root is '{root}', but {tmp_path / 'file'} is there and is not a folder" in finding
        assert "--params=data_root=" in finding
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    assert "is not a folder" in check(tmp_path / "dead")[0]


def test_a_data_root_elsewhere_is_named(project: Path, blocks: dict[str, Any]) -> None:
    root = "s3://bucket/data"
    with pytest.raises(InputError, match=r"data_root is 's3://bucket/data': results are stored in folders"):
        check_storage(PIPELINE, _catalog(project, root), {}, blocks, root)


def shut_to_writing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As for a user without the right, whoever runs the tests."""
    real = tempfile.TemporaryFile

    def refuse(*, dir: Path) -> Any:
        if Path(dir) == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)


def test_a_folder_of_results_that_cannot_be_written_is_named(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = tmp_path / "06_models"
    shut.mkdir()
    shut_to_writing(monkeypatch, shut)
    (finding,) = check(tmp_path)
    assert f"data_root is '{tmp_path}', but {shut} cannot be written (Permission denied): put that right" in finding


def test_a_folder_for_temporary_files_that_cannot_be_used_is_named(
    check: Check, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = check(tmp_path / "data")
    assert f"TMPDIR is '{temporary}', but there is no such folder" in finding
    assert "set TMPDIR to another, or unset it" in finding
    temporary.write_text("")
    assert "is there and is not a folder" in check(tmp_path / "data")[0]
    temporary.unlink()
    temporary.mkdir()
    assert check(tmp_path / "data") == []
    shut_to_writing(monkeypatch, temporary)
    assert f"{temporary} cannot be written (Permission denied)" in check(tmp_path / "data")[0]


def test_a_small_disk_for_temporary_files_is_named(
    check: Check, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary.mkdir()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**40 if path != temporary else 1000))
    assert check(tmp_path / "data") == []  # one disk, on which results are only renamed
    stat = Path.stat

    def other_disk(path: Path, **options: Any) -> Any:
        found = stat(path, **options)
        return SimpleNamespace(st_dev=-1, st_mode=found.st_mode) if path == temporary else found

    monkeypatch.setattr(Path, "stat", other_disk)
    (finding,) = check(tmp_path / "data")
    assert f"TMPDIR is '{temporary}', where results are prepared: this run needs about" in finding
    assert "set TMPDIR to a folder with more room" in finding


def test_a_small_disk_for_results_is_named(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    (finding,) = check(tmp_path / "data")
    assert f"parameter data_root is '{tmp_path / 'data'}': this run needs about" in finding


def test_models_count_as_they_are_stored(project: Path, tmp_path: Path, blocks: dict[str, Any]) -> None:
    shipped = folder_size(resolve_model(ModelConfig()))
    trained = model_bytes(ModelConfig())
    assert trained > 1.8 * shipped  # bfloat16 in the package, float32 once trained
    assert model_bytes(ModelConfig(dtype="bfloat16")) == pytest.approx(shipped, rel=0.01)
    assert model_bytes(ModelConfig(name="organisation/elsewhere")) == 0
    catalog = _catalog(project, tmp_path)
    embedded = {**blocks, "model": ModelConfig()}
    assert bytes_needed(["policy_model"], catalog, embedded) == trained
    assert bytes_needed(["policy_model", "policy_curves", "policy_episodes"], catalog, embedded) > trained


def test_states_count_as_long_as_a_node_trains(
    check: Check, loader: Loader, blocks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_bytes(blocks["model"])
    trained = state_bytes(PIPELINE.nodes, blocks)
    assert trained == 3 * STATE_MODELS * model, "two states, and the one that is being written"
    whole = register_pipelines()["rwml_then_rl"]
    assert state_bytes(whole.nodes, blocks) == trained, "one node after the other"
    assert state_bytes([node for node in whole.nodes if "train" not in node.tags], blocks) == 0
    tuned = {"learner": {"adapter": {"rank": 2}}}
    adapted = validated(loader("test", model=dict(blocks["model"]), policy=tuned)["parameters"])
    assert state_bytes(PIPELINE.nodes, adapted) == 3 * 2 * model, "an adapter's moments are small"
    usage = shutil.disk_usage(tmp_path)
    stored = bytes_needed(PIPELINE.all_outputs(), _catalog(Path(__file__).parents[2], tmp_path), blocks)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=stored + trained - 1))
    assert "this run needs about" in check(tmp_path / "data")[0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=stored + trained))
    assert check(tmp_path / "data") == []
