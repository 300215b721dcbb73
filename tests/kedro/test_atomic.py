"""A stored file is whole, or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from kedro.io import AbstractVersionedDataset, DatasetError
from kedro.io.core import Version

from worldwise.cli.run import StoppedError, explained
from worldwise.datasets.atomic import FigureDataset, JSONDataset, ParquetDataset, StoreError, TextDataset
from worldwise.datasets.optional import OptionalJSONDataset
from worldwise.datasets.transitions import TransitionsDataset
from worldwise.files import whole_file
from worldwise.tracking.hook import status_of
from worldwise.tracking.interruption import RunInterrupted

VERSION = "2026-01-01T00.00.00.000Z"

Kind = type[Any]

CONTENTS: dict[Kind, Any] = {
    JSONDataset: {"train": [1, 2]},
    OptionalJSONDataset: {"rows": [1]},
    ParquetDataset: pd.DataFrame({"a": [1, 2]}),
    TextDataset: "# Report",
    FigureDataset: go.Figure(go.Scatter(y=[1, 2])),
    TransitionsDataset: [],
}


def _dataset(kind: Kind, root: Path) -> AbstractVersionedDataset[Any, Any]:
    dataset: AbstractVersionedDataset[Any, Any] = kind(
        filepath=(root / "result").as_posix(), version=Version(None, VERSION)
    )
    return dataset


@pytest.mark.parametrize("kind", CONTENTS)
def test_what_is_stored_comes_back(kind: Kind, tmp_path: Path) -> None:
    dataset = _dataset(kind, tmp_path)
    assert not dataset.exists()
    dataset.save(CONTENTS[kind])
    assert dataset.exists()
    back = dataset.load()
    assert back.equals(CONTENTS[kind]) if isinstance(back, pd.DataFrame) else back == CONTENTS[kind]
    assert sorted(path.name for path in (tmp_path / "result" / VERSION).iterdir()) == ["_manifest.json", "result"]
    with pytest.raises(DatasetError, match="must not exist"):
        dataset.save(CONTENTS[kind])


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("kind", CONTENTS)
def test_a_disk_that_is_full_leaves_no_version(
    kind: Kind, writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full when the file itself is written, or its manifest."""

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    calls = iter(range(10))
    monkeypatch.setattr(os, "fsync", lambda file: None if next(calls) < writes else full_disk(file))
    dataset = _dataset(kind, tmp_path)
    with pytest.raises(DatasetError, match=r"cannot store .*result: .*No space left on device; free some space"):
        dataset.save(CONTENTS[kind])
    assert not dataset.exists()
    assert dataset.list_versions() == []
    assert list((tmp_path / "result").iterdir()) == []


def test_a_writer_that_breaks_in_the_middle_leaves_no_version(tmp_path: Path) -> None:
    dataset = _dataset(JSONDataset, tmp_path)
    # json.dump has written the first entry by the time it meets the second.
    with pytest.raises(StoreError, match=r"cannot store .*not JSON serializable\. Nothing was stored"):
        dataset.save({"first": 1, "second": object()})
    assert not dataset.exists()
    assert list((tmp_path / "result").iterdir()) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_a_stop_leaves_nothing_and_what_was_there_stays(tmp_path: Path, stop: type[BaseException]) -> None:
    (tmp_path / "old.txt").write_text("old")

    def write(name: str) -> None:
        with whole_file(tmp_path / name) as part:
            part.write_text("half")
            raise stop

    for name in ("old.txt", "new/file.txt"):
        with pytest.raises(stop):
            write(name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


def test_a_stop_while_storing_or_loading_is_told_as_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise RunInterrupted("stopped by SIGINT")

    dataset = _dataset(JSONDataset, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(json, "dump", stopped)
        with pytest.raises(DatasetError) as caught:
            dataset.save({"rows": []})
    assert status_of(caught.value) == "KILLED"
    assert isinstance(explained(caught.value), StoppedError)
    dataset.save({"rows": []})
    monkeypatch.setattr(json, "load", stopped)
    with pytest.raises(DatasetError, match=r"stopped by SIGINT") as caught:
        dataset.load()
    assert "damaged" not in str(caught.value)
    assert status_of(caught.value) == "KILLED"


def test_a_process_that_is_killed_leaves_no_version(tmp_path: Path) -> None:
    target = tmp_path / "result" / VERSION / "result"
    code = (
        "import os, pathlib, sys\n"
        "from worldwise.files import whole_file\n"
        "with whole_file(pathlib.Path(sys.argv[1])) as part:\n"
        "    part.write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(target)], check=False).returncode == -9
    (left,) = target.parent.iterdir()
    assert left.name.startswith(".result.")
    assert left.suffix == ".part"
    for kind in CONTENTS:
        assert not _dataset(kind, tmp_path).exists()
        assert _dataset(kind, tmp_path).list_versions() == []


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    for kind in (JSONDataset, ParquetDataset, TransitionsDataset):
        dataset = _dataset(kind, tmp_path / kind.__name__)
        dataset.save(CONTENTS[kind])
        path = tmp_path / kind.__name__ / "result" / VERSION / "result"
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(DatasetError, match=r"result cannot be read .*run the node that makes it again"):
            dataset.load()


def test_previews_show_what_is_stored(tmp_path: Path) -> None:
    for kind in (JSONDataset, ParquetDataset, FigureDataset):
        dataset = _dataset(kind, tmp_path / kind.__name__)
        dataset.save(CONTENTS[kind])
        assert isinstance(dataset, kind)
        shown = dataset.preview()
        assert json.loads(shown) == CONTENTS[kind] if isinstance(shown, str) else shown["data"]
