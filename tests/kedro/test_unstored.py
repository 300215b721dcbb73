"""A finished result is not lost when storing fails."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks
from kedro.io import DataCatalog, DatasetError
from kedro.pipeline import Pipeline, node
from kedro.runner import SequentialRunner

from worldwise.hooks.unstored import UnstoredHooks
from worldwise.ledger.manifest import Provenance, read_manifest
from worldwise.ledger.provenance import set_made
from worldwise.ledger.publish import (
    PublishError,
    is_scratch,
    publish_folder,
    record_of,
    scratch_folder,
    store_kept,
)

VERSION = "2026-01-01T00.00.00.000Z"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of its own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def _result(name: str = "policy") -> Path:
    scratch = scratch_folder(name)
    (scratch / "weights").write_text("trained for days")
    return scratch


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _placing(target: Path, *errors: int) -> Callable[[Any, Any], None]:
    """`os.rename` that fails with these errors, one after the other, where something is to become `target`."""
    to_come = list(errors)

    def rename(source: Any, to: Any) -> None:
        if Path(to) == target and to_come:
            raise OSError(to_come.pop(0), "refused")
        os.replace(source, to)

    return rename


@pytest.mark.parametrize("failing", ["mkdir", "rename", "copy", "flush", "place"])
def test_a_scratch_folder_that_cannot_be_stored_is_kept(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    source, target = _result(), tmp_path / "models" / VERSION / "policy"
    with monkeypatch.context() as broken:
        if failing == "mkdir":
            (tmp_path / "models").write_text("in the way")
        elif failing == "flush":
            broken.setattr(os, "fsync", _full)
        elif failing == "rename":
            broken.setattr(os, "rename", _placing(target, errno.ENOSPC))
        elif failing == "place":
            broken.setattr(os, "rename", _placing(target, errno.EXDEV, errno.ENOSPC))
        else:
            broken.setattr(os, "rename", _placing(target, errno.EXDEV))
            broken.setattr(shutil, "copyfile", _full)
        with pytest.raises(PublishError, match=rf"is kept in .*kedro worldwise store \S+ {target}") as caught:
            publish_folder(source, target)
    assert "[(" not in str(caught.value)
    kept, record = sorted(temporary.iterdir())
    assert record == record_of(kept)
    assert str(kept) in str(caught.value)
    assert not is_scratch(kept)
    assert (kept / "weights").read_text() == "trained for days"
    shutil.rmtree(source, ignore_errors=True)  # what the end of the process does
    assert kept.exists()
    assert not target.exists()
    assert not list(tmp_path.glob("models/*"))


@pytest.mark.parametrize("other_disk", [False, True])
def test_a_kept_result_is_stored_later_with_what_made_it(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_disk: bool
) -> None:
    target = tmp_path / "models" / VERSION / "policy"
    made = Provenance(node="train_policy", key="abc", run_id=VERSION)
    set_made(made)
    try:
        source = _result()
    finally:
        set_made(None)
    with monkeypatch.context() as broken:
        if other_disk:
            broken.setattr(os, "rename", _placing(target, errno.EXDEV))
        with pytest.raises(PublishError, match="No space left on device; the finished result is kept in"):
            publish_folder(source, target, _full)
    assert not target.exists()
    kept, _ = sorted(temporary.iterdir())
    assert store_kept(kept, target).made == made
    assert (target / "weights").read_text() == "trained for days"
    assert read_manifest(target) is not None
    assert not list(temporary.iterdir())
    with pytest.raises(PublishError, match="is no kept result"):
        store_kept(target, tmp_path / "models" / VERSION / "other")


def test_a_scratch_folder_is_copied_to_another_disk(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "models" / VERSION / "policy"
    monkeypatch.setattr(os, "rename", _placing(target, errno.EXDEV))
    publish_folder(_result(), target)
    assert (target / "weights").read_text() == "trained for days"
    assert list(target.parent.iterdir()) == [target]
    assert not list(temporary.iterdir())


def test_all_results_of_a_node_are_kept_when_one_cannot_be_stored(
    temporary: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train() -> tuple[Path, dict[str, int], Path]:
        return _result("first"), {"rows": 1}, _result("model")

    outputs = ["first", "curves", "model"]
    pipeline = Pipeline([node(train, None, outputs, name="train")])
    kinds = {"first": "folder.FolderDataset", "curves": "atomic.JSONDataset", "model": "folder.FolderDataset"}
    catalog = DataCatalog.from_config(
        {
            name: {
                "type": f"worldwise.datasets.{kind}",
                "filepath": (tmp_path / "data" / name).as_posix(),
                "versioned": True,
            }
            for name, kind in kinds.items()
        },
        save_version=VERSION,
    )
    manager = _create_hook_manager()
    _register_hooks(manager, (UnstoredHooks(),))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "curves").write_text("in the way")
    common: dict[str, Any] = {"run_params": {}, "pipeline": pipeline, "catalog": catalog}
    manager.hook.before_pipeline_run(**common)
    with pytest.raises(DatasetError, match=r"cannot store .*curves") as caught:
        SequentialRunner().run(pipeline, catalog, manager)
    with caplog.at_level(logging.ERROR):
        manager.hook.on_pipeline_error(error=caught.value, **common)
    assert (tmp_path / "data" / "first" / VERSION / "first").is_dir()
    kept, record = sorted(temporary.iterdir())
    assert record == record_of(kept)
    assert kept.name.startswith(f"worldwise-kept-{os.getpid()}-model-")
    assert f"model was not stored; the finished result is kept in {kept}" in caplog.text
    assert str(tmp_path / "data" / "model" / VERSION / "model") in caplog.text
    assert "first was not stored" not in caplog.text
