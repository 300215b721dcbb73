"""Folder datasets: versions appear whole, broken folders are refused by name, kedro-viz sees what is inside."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from kedro.io import DatasetError
from kedro.io.core import Version
from safetensors.numpy import save_file

from worldwise.datasets.checkpoint import CheckpointDataset
from worldwise.datasets.episodes import EpisodesDataset
from worldwise.datasets.optional import OptionalEpisodesDataset
from worldwise.ledger.publish import scratch_folder


def _checkpoint(folder: Path, size: int = 8) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"], "hidden_size": size}))
    save_file({"weights": np.zeros(size, np.float32)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def _dataset(root: Path, save: str | None = None, load: str | None = None) -> CheckpointDataset:
    return CheckpointDataset(filepath=(root / "06_models" / "policy").as_posix(), version=Version(load, save))


def test_versions_are_kept_and_the_newest_is_loaded(tmp_path: Path) -> None:
    _dataset(tmp_path, save="2026-01-01T00.00.00.000Z").save(_checkpoint(tmp_path / "a", 8))
    _dataset(tmp_path, save="2026-01-02T00.00.00.000Z").save(_checkpoint(tmp_path / "b", 16))
    newest = _dataset(tmp_path).load()
    assert json.loads((newest / "config.json").read_text())["hidden_size"] == 16
    pinned = _dataset(tmp_path, load="2026-01-01T00.00.00.000Z").load()
    assert json.loads((pinned / "config.json").read_text())["hidden_size"] == 8
    assert _dataset(tmp_path).exists()


def test_nothing_stored_is_not_an_error_to_ask_about(tmp_path: Path) -> None:
    assert not _dataset(tmp_path).exists()


@pytest.mark.parametrize(
    ("lost", "named"),
    [("config.json", "config.json"), ("model.safetensors", "weights"), ("tokenizer.json", "tokenizer")],
)
def test_an_incomplete_model_folder_is_refused_by_name(tmp_path: Path, lost: str, named: str) -> None:
    source = _checkpoint(tmp_path / "source")
    (source / lost).unlink()
    dataset = _dataset(tmp_path, save="2026-01-01T00.00.00.000Z")
    with pytest.raises(DatasetError, match=f"has no .*{named}.*delete it and run the node"):
        dataset.save(source)
    assert not dataset.exists()


def test_weights_that_are_cut_short_are_named(tmp_path: Path) -> None:
    dataset = _dataset(tmp_path, save="2026-01-01T00.00.00.000Z")
    dataset.save(_checkpoint(tmp_path / "source"))
    weights = dataset.load() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(
        DatasetError, match=r"model\.safetensors .* is cut short .*delete it and run the node that makes it again"
    ):
        dataset.load()


def test_a_scratch_folder_is_moved_in(tmp_path: Path) -> None:
    scratch = _checkpoint(scratch_folder("policy"))
    _dataset(tmp_path, save="2026-01-01T00.00.00.000Z").save(scratch)
    assert not scratch.exists()
    assert _dataset(tmp_path).load().name == "policy"


def test_a_missing_source_is_named_and_not_taken_for_a_version_clash(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="nowhere is not a folder"):
        _dataset(tmp_path, save="2026-01-01T00.00.00.000Z").save(tmp_path / "nowhere")


def test_the_preview_says_what_the_model_is(tmp_path: Path) -> None:
    _dataset(tmp_path, save="2026-01-01T00.00.00.000Z").save(_checkpoint(tmp_path / "a"))
    shown = json.loads(_dataset(tmp_path).preview())
    assert shown["model"]["architectures"] == ["Qwen3ForCausalLM"]
    assert shown["files"]["model.safetensors"] == "0.0 MiB"
    assert inspect.signature(CheckpointDataset.preview).return_annotation == "JSONPreview"


def test_episodes_are_shards(tmp_path: Path) -> None:
    dataset = EpisodesDataset(filepath=(tmp_path / "episodes").as_posix(), version=Version(None, "1"))
    with pytest.raises(DatasetError, match="no shard"):
        dataset.save(scratch_folder("empty"))
    shards = scratch_folder("episodes")
    for index, rows in enumerate((3, 2)):
        table = pyarrow.table({"episode_id": [str(row) for row in range(rows)]})
        pyarrow.parquet.write_table(table, shards / f"part-{index}.parquet")
    dataset.save(shards)
    assert json.loads(dataset.preview()) == {
        "rows": 5,
        "shards": {"part-0.parquet": 3, "part-1.parquet": 2},
        "columns": ["episode_id"],
    }
    stored = dataset.load() / "part-1.parquet"
    stored.write_bytes(stored.read_bytes()[:-9])
    with pytest.raises(DatasetError, match=r"part-1\.parquet cannot be read .*run the node that makes it again"):
        dataset.load()


def test_episodes_that_are_not_stored_are_shown_as_such(tmp_path: Path) -> None:
    dataset = OptionalEpisodesDataset(filepath=(tmp_path / "episodes").as_posix(), version=Version(None, "1"))
    assert dataset.load() is None
    assert json.loads(dataset.preview()) == "nothing is stored yet"
    shards = scratch_folder("episodes")
    pyarrow.parquet.write_table(pyarrow.table({"episode_id": ["a"]}), shards / "part-0.parquet")
    dataset.save(shards)
    assert json.loads(dataset.preview())["rows"] == 1
