"""States appear whole, cost little, and never stop a run."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from worldwise.ledger.workspace import Workspace


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _save(own: Workspace, text: str) -> None:
    own.save(lambda folder: (folder / "step").write_text(text) and None)


def test_the_newest_two_states_are_kept(tmp_path: Path) -> None:
    own = Workspace(tmp_path / "work", 0.0)
    assert own.latest() is None
    for number in range(4):
        _save(own, str(number))
    latest = Workspace(tmp_path / "work", 0.0).latest()
    assert latest is not None
    assert (latest / "step").read_text() == "3"
    states = sorted((tmp_path / "work").iterdir())
    assert [(path / "step").read_text() for path in states] == ["2", "3"]
    own.remove()
    assert not (tmp_path / "work").exists()


def test_saving_takes_at_most_its_share_of_the_time(tmp_path: Path) -> None:
    clock = Clock()
    own = Workspace(tmp_path, 10.0, clock)

    def slow(folder: Path) -> None:
        clock.now += 3.0

    clock.now = 9.9
    assert not own.due()
    clock.now = 10.0
    assert own.due()
    own.save(slow)
    clock.now += 99.0
    assert not own.due(), "3 seconds are more than 3 % of 99"
    clock.now += 1.1
    assert own.due()
    always = Workspace(tmp_path, 0.0, clock)
    always.save(slow)
    assert always.due()


def test_a_full_disk_costs_the_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = Workspace(tmp_path / "work", 0.0)
    own.save(lambda folder: (folder / "step").write_text("1") and None)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            own.save(lambda folder: (folder / "step").write_text("2") and None)
    assert caplog.text.count("No space left on device") == 1
    latest = own.latest()
    assert latest is not None
    assert (latest / "step").read_text() == "1"
    assert len(list((tmp_path / "work").iterdir())) == 1


@pytest.mark.parametrize("harm", ["flip", "cut", "lose", "list"])
def test_a_damaged_state_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str) -> None:
    own = Workspace(tmp_path / "work", 0.0)
    own.save(lambda folder: (folder / "weights").write_bytes(b"12345678") and None)
    state = own.latest()
    assert state is not None
    if harm == "flip":
        (state / "weights").write_bytes(b"12345679")
    elif harm == "cut":
        (state / "weights").write_bytes(b"1234")
    elif harm == "lose":
        (state / "weights").unlink()
    else:
        (state / "files.json").write_text("{")
    assert own.latest() is None
    assert f"the state in {state} is damaged" in caplog.text
    own.save(lambda folder: (folder / "weights").write_bytes(b"new") and None)
    latest = own.latest()
    assert latest is not None
    assert (latest / "weights").read_bytes() == b"new"


def test_a_damaged_state_costs_what_was_done_since_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = Workspace(tmp_path / "work", 0.0)
    for text in ("1", "2", "3"):
        _save(own, text)
    newest = own.latest()
    assert newest is not None
    (newest / "step").write_text("4")
    older = Workspace(tmp_path / "work", 0.0).latest()
    assert older is not None
    assert (older / "step").read_text() == "2"
    assert f"the state in {newest} is damaged (step is not what was saved)" in caplog.text
    _save(own, "3 again")
    latest = own.latest()
    assert latest is not None
    assert (latest / "step").read_text() == "3 again"


@pytest.mark.parametrize("number", [errno.ENOSPC, None])
def test_where_there_is_no_room_for_a_third_state_the_older_one_makes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int | None
) -> None:
    folder = tmp_path / "work"
    own = Workspace(folder, 0.0)

    def save(text: str, room_for: int) -> None:
        def write(part: Path) -> None:
            if len(list(folder.iterdir())) > room_for:
                raise OSError(number, "No space left on device") if number else OSError("No space left on device")
            (part / "step").write_text(text)

        own.save(write)

    for text in ("1", "2", "3"):
        save(text, room_for=2)
    assert [(path / "step").read_text() for path in sorted(folder.iterdir())] == ["2", "3"]
    assert not caplog.text
    save("4", room_for=1)
    assert [(path / "step").read_text() for path in folder.iterdir()] == ["3"], "the newest one never goes"
    assert "No space left on device" in caplog.text


def test_a_process_that_is_killed_while_it_saves_leaves_the_last_state(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from worldwise.ledger.workspace import Workspace\n"
        "own = Workspace(pathlib.Path(sys.argv[1]), 0.0)\n"
        "own.save(lambda folder: (folder / 'step').write_text('1'))\n"
        "def die(folder):\n"
        "    (folder / 'step').write_text('2')\n"
        "    os.kill(os.getpid(), 9)\n"
        "own.save(die)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    latest = Workspace(tmp_path, 0.0).latest()
    assert latest is not None
    assert (latest / "step").read_text() == "1"
