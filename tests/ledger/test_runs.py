"""Runs side by side know of each other, however one of them ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worldwise.ledger.runs import LiveRuns, RunEntry

OTHER = """
import sys, time
from pathlib import Path
from worldwise.ledger.runs import LiveRuns, RunEntry
runs = LiveRuns(Path(sys.argv[1]))
entry = RunEntry.of_this_process("other", "kedro run")
runs.enter(entry)
assert runs.claim("key", entry) is None
print("ready", flush=True)
time.sleep(float(sys.argv[2]))
runs.leave()
print("left", flush=True)
time.sleep(60)
"""


def _entry(name: str = "own") -> RunEntry:
    return RunEntry.of_this_process(name, "kedro run --only-missing-outputs")


@contextmanager
def _other(folder: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OTHER, str(folder), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_run_is_alive_until_it_leaves(tmp_path: Path) -> None:
    runs = LiveRuns(tmp_path)
    assert runs.alive() == []
    runs.enter(_entry())
    assert [entry.run_id for entry in runs.alive()] == ["own"]
    runs.leave()
    assert runs.alive() == []
    assert not list(tmp_path.rglob("*.json"))


def test_a_killed_run_is_not_alive_and_holds_nothing(tmp_path: Path) -> None:
    runs = LiveRuns(tmp_path)
    with _other(tmp_path, 60) as process:
        (other,) = runs.alive()
        assert (other.run_id, other.pid) == ("other", process.pid)
        holder = runs.claim("key", _entry())
        assert holder is not None
        assert holder.run_id == "other"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert runs.alive() == []
        assert runs.claim("key", _entry()) is None


def test_a_claim_is_waited_for_and_then_held(tmp_path: Path) -> None:
    runs = LiveRuns(tmp_path)
    said: list[str] = []
    with _other(tmp_path, 1.0):
        begun = time.monotonic()
        waited = runs.wait("key", _entry(), lambda other, seconds: said.append(str(other)))
        assert 0.5 < waited <= time.monotonic() - begun
    assert len(said) == 1
    assert said[0].startswith("run other (process")
    assert runs.wait("another key", _entry(), lambda other, seconds: said.append("")) == 0.0
    assert len(said) == 1


def test_a_released_claim_is_free(tmp_path: Path) -> None:
    first, second = LiveRuns(tmp_path), LiveRuns(tmp_path)
    assert first.claim("key", _entry("first")) is None
    holder = second.claim("key", _entry("second"))
    assert holder is not None
    assert holder.run_id == "first"
    first.release("key")
    assert second.claim("key", _entry("second")) is None
    second.release("never claimed")


def test_while_somebody_looks_no_run_begins(tmp_path: Path) -> None:
    first, second, third = (LiveRuns(tmp_path) for _ in range(3))
    first.enter(_entry("first"))
    entering = threading.Thread(target=lambda: second.enter(_entry("second")))
    with third.none_begins() as alive:
        assert [entry.run_id for entry in alive] == ["first"]
        entering.start()
        entering.join(0.5)
        assert entering.is_alive()
        assert [entry.run_id for entry in third.alive()] == ["first"]
    entering.join(30)
    assert [entry.run_id for entry in third.alive()] == ["first", "second"]
    first.leave()
    second.leave()
