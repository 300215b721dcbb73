"""A stop lets a write finish, the second one does not. The writers are real processes, slow as their readers are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from worldwise.deferring import deferred, put_off

WRITER = """
import json, os, pathlib, sys
from worldwise.tracking.interruption import Interruption, RunInterrupted, interruptible
kind, root = sys.argv[1], pathlib.Path(sys.argv[2])

def slowly(path):
    path.write_text("first ")
    print("writing", flush=True)
    # Waits for somebody who writes: as slow as a disk can be.
    more = open(root / "pipe").read()
    with path.open("a") as file:
        file.write(more)

def state():
    from worldwise.ledger.workspace import Workspace
    Workspace(root / "work", 0.0).save(lambda folder: slowly(folder / "state"))

def file():
    from worldwise.files import whole_file
    with whole_file(root / "result") as part:
        slowly(part)

def folder():
    from worldwise.ledger.publish import publish_folder
    prepared = root / "prepared"
    prepared.mkdir()
    publish_folder(prepared, root / "stored", lambda target: slowly(target / "manifest"))

def dataset():
    from kedro.io import Version
    from worldwise.datasets.atomic import TextDataset
    class Slow(TextDataset):
        def write(self, data, path):
            slowly(path)
    Slow(filepath=str(root / "text"), version=Version(None, "v")).save("text")

Interruption().install()
try:
    interruptible({"state": state, "file": file, "folder": folder, "dataset": dataset}[kind])()
except RunInterrupted as stop:
    print("at the end:", stop, flush=True)
except Exception as error:
    print("at the end:", error.__cause__, flush=True)
"""

WRITTEN = {
    "state": "work/state-000001/state",
    "file": "result",
    "folder": "stored/manifest",
    "dataset": "text/v/text",
}


def begin(kind: str, root: Path) -> subprocess.Popen[str]:
    """A writer in the middle of its write."""
    os.mkfifo(root / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(root)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_first_signal_lets_a_write_finish(tmp_path: Path, kind: str) -> None:
    with begin(kind, tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None, "it still writes"
        (tmp_path / "pipe").write_text("second")
        assert process.stdout is not None
        assert process.stdout.read() == "at the end: stopped by SIGTERM\n"
    assert (tmp_path / WRITTEN[kind]).read_text() == "first second"
    assert not list(tmp_path.rglob(".*.part"))


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_second_signal_ends_a_write_at_once(tmp_path: Path, kind: str) -> None:
    with begin(kind, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        # Nobody ever writes into the pipe.
        process.wait(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / WRITTEN[kind]).exists()
    assert not list(tmp_path.rglob(".*.part"))


def test_the_outermost_section_counts_and_an_error_is_the_cause_of_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    stop = RuntimeError("stop")
    reached = []

    def nested() -> None:
        with deferred():
            with deferred():
                assert put_off(stop)
            reached.append("between")
            raise ValueError("the write failed")

    with pytest.raises(RuntimeError, match="stop") as caught:
        nested()
    assert reached == ["between"]
    assert isinstance(caught.value.__cause__, ValueError)
    assert "the write failed" in caplog.text
    assert not put_off(stop), "no section is open"
    with deferred():
        pass


def test_other_threads_defer_nothing() -> None:
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with deferred():
            inside.set()
            leave.wait(20)

    writer = threading.Thread(target=write)
    writer.start()
    assert inside.wait(20)
    assert not put_off(RuntimeError("a stop would be raised in the wrong thread"))
    leave.set()
    writer.join()
