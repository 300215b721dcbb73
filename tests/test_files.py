"""Whether a folder can be written, found by writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from worldwise.files import nearest, refusal


def test_places_are_probed_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "a" / "b") is None
    monkeypatch.chdir(tmp_path)
    assert refusal(Path("a") / "b") is None
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file" / "b") == f"{tmp_path / 'file'} is there and is not a folder"
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "probing leaves nothing behind"


def test_a_read_only_disk_is_named_with_its_reason() -> None:
    assert refusal(Path("/proc/worldwise")) is not None


def test_the_nearest_place_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    assert nearest(tmp_path / "a" / "b") == tmp_path
    assert nearest(tmp_path / "dead" / "b") == tmp_path / "dead"
