"""Which runs are at work on a data root, and which node each of them is making.

A run holds a lock while it lasts, and one for the node that it is in. The system gives the locks back when a process
ends, however it ends, so a killed run is never taken for one at work.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from worldwise.config import FrozenConfig
from worldwise.files import whole_file

_POLL_S = 0.5
_SAY_EVERY_S = 60.0
_logger = logging.getLogger(__name__)


class RunEntry(FrozenConfig):
    """A run.

    Attributes:
        run_id: name of its versions.
        pid: its process.
        host: its machine.
        command: as it was typed.
    """

    run_id: str
    pid: int
    host: str
    command: str

    @classmethod
    def of_this_process(cls, run_id: str, command: str) -> RunEntry:
        """The entry of a run in this process."""
        return cls(run_id=run_id, pid=os.getpid(), host=socket.gethostname(), command=command)

    def __str__(self) -> str:
        return f"run {self.run_id} (process {self.pid} on {self.host})"


class LiveRuns:
    """The runs of a data root, seen from one of them or from beside them.

    Args:
        folder: where locks and entries lie.
    """

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self._nodes = folder / "nodes"
        self._door = folder / "begin.lock"
        self._held: dict[Path, FileLock] = {}

    def enter(self, entry: RunEntry) -> None:
        """Says that a run is at work until `leave`, or until this process ends. Waits where `none_begins` holds.

        Raises:
            OSError: the disk refused.
        """
        with self._shut():
            self._take(self._runs / f"{entry.run_id}.json", entry)

    @contextmanager
    def none_begins(self) -> Iterator[list[RunEntry]]:
        """While the block lasts no other run enters; gives it those that are at work.

        Raises:
            OSError: the disk refused.
        """
        with self._shut():
            yield self.alive()

    def leave(self) -> None:
        """Gives back all that was taken."""
        for path in list(self._held):
            self._give_back(path)

    def alive(self) -> list[RunEntry]:
        """The runs that are at work; what others left is cleaned away."""
        found = []
        for path in sorted(self._runs.glob("*.json")):
            entry = _read(path)
            if path not in self._held and _lock(path) is not None:
                path.unlink(missing_ok=True)
                path.with_suffix(".lock").unlink(missing_ok=True)
            elif entry is not None:
                found.append(entry)
        return found

    def claim(self, key: str, entry: RunEntry) -> RunEntry | None:
        """Says that a run makes the node with this key until `release`.

        Returns:
            None if it does so from now on; the run that is at it already otherwise.

        Raises:
            OSError: the disk refused.
        """
        path = self._nodes / f"{key}.json"
        if self._take(path, entry):
            return None
        # Between the lock and the entry of another run lies a moment.
        unnamed = RunEntry(run_id="that has just begun", pid=0, host="", command="")
        return _read(path) or unnamed

    def release(self, key: str) -> None:
        """Takes a claim back."""
        path = self._nodes / f"{key}.json"
        if path in self._held:
            self._give_back(path)

    def wait(self, key: str, entry: RunEntry, say: Callable[[RunEntry, float], None]) -> float:
        """Claims a node once no other run is at it.

        Args:
            key: of the node.
            entry: who wants it.
            say: called with the run that is waited for and the seconds so far, at once and every minute.

        Returns:
            Seconds waited; 0 if it was free.
        """
        begun = time.monotonic()
        said: float | None = None
        while (holder := self.claim(key, entry)) is not None:
            waited = time.monotonic() - begun
            if said is None or waited - said >= _SAY_EVERY_S:
                say(holder, waited)
                said = waited
            time.sleep(_POLL_S)
        return 0.0 if said is None else time.monotonic() - begun

    @contextmanager
    def _shut(self) -> Iterator[None]:
        """Holds the lock that every run takes for a moment when it enters."""
        self._door.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._door)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            _logger.info("waiting for another process that has locked %s: a sweep, or a run that begins", self._door)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _take(self, path: Path, entry: RunEntry) -> bool:
        lock = _lock(path)
        if lock is None:
            return False
        self._held[path] = lock
        with whole_file(path) as part:
            part.write_text(entry.model_dump_json(), encoding="utf-8")
        return True

    def _give_back(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        if path.parent == self._runs:
            # Nobody else ever takes the lock of a run; that of a node another process may be about to take.
            path.with_suffix(".lock").unlink(missing_ok=True)
        self._held.pop(path).release()


def _lock(path: Path) -> FileLock | None:
    """The lock that goes with an entry, taken; None where another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock


def _read(path: Path) -> RunEntry | None:
    """The entry of a file; None where it is gone or is none."""
    with suppress(OSError, ValidationError, UnicodeDecodeError):
        return RunEntry.model_validate_json(path.read_text(encoding="utf-8"))
    return None
