"""Folders are stored whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from worldwise.ledger.publish import PublishError, folder_size, publish_folder, require_free_space, scratch_folder


def _filled(folder: Path) -> Path:
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text("12345")
    (folder / "inner" / "b.txt").write_text("123")
    return folder


def test_a_folder_is_copied_and_stays(tmp_path: Path) -> None:
    source = _filled(tmp_path / "source")
    publish_folder(source, tmp_path / "versions" / "1" / "model")
    assert (tmp_path / "versions" / "1" / "model" / "inner" / "b.txt").read_text() == "123"
    assert (source / "a.txt").exists()


def test_a_scratch_folder_is_used_up(tmp_path: Path) -> None:
    scratch = scratch_folder("test")
    (scratch / "a.txt").write_text("1")
    publish_folder(scratch, tmp_path / "model")
    assert not scratch.exists()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("scratch", [True, False])
def test_what_was_being_written_when_a_process_was_killed_is_not_stored(tmp_path: Path, scratch: bool) -> None:
    source = _filled(scratch_folder("test") if scratch else tmp_path / "source")
    for place in (source, source / "inner"):
        (place / ".c.parquet.abc.part").write_text("half")
    publish_folder(source, tmp_path / "model")
    names = sorted(path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*"))
    assert names == ["a.txt", "inner", "inner/b.txt"]
    if not scratch:
        assert (source / ".c.parquet.abc.part").exists(), "the folder belongs to somebody else"


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _filled(tmp_path / "source")

    def full_disk(_: Path, target: Path) -> None:
        target.mkdir()
        (target / "a.txt").write_text("123")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full_disk)
    with pytest.raises(PublishError, match="No space left"):
        publish_folder(source, tmp_path / "versions" / "model")
    assert not (tmp_path / "versions").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = _filled(tmp_path / "source")
    (tmp_path / "model").mkdir()
    with pytest.raises(PublishError, match="exists already"):
        publish_folder(source, tmp_path / "model")
    with pytest.raises(PublishError, match="not a folder"):
        publish_folder(tmp_path / "nowhere", tmp_path / "other")


def test_sizes_and_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder_size(_filled(tmp_path / "source")) == 8
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 * 2**20))
    require_free_space(tmp_path / "not" / "there" / "yet", 10 * 2**20, "this run", "free some")
    with pytest.raises(PublishError, match=r"this run needs about 11 MiB .* has 10 MiB left: free some"):
        require_free_space(tmp_path, 11 * 2**20, "this run", "free some")
