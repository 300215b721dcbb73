"""The folder in which a node keeps where it stands, so that a killed one goes on.

It is named after the node and its key (code, parameters, inputs), so only a run that would make the same finds it. Once
everything that the node makes is stored it goes.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

from worldwise.deferring import deferred
from worldwise.files import flush, part_of
from worldwise.ledger.digests import FileEntry, file_entries

WORK_FOLDER = ".worldwise"
"""Folder in the data root for what is no result."""

WORKSPACES = "work"
"""Folder in it for the workspaces."""

KEY_SHOWN = 16
"""So much of a node's key stands in the name of its workspace."""

SHARE = 0.03
"""Saving takes at most this share of the time."""

STATES_KEPT = 2
"""The newest state, and the one before it, which serves if the newest is found damaged."""

_FILES = "files.json"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, None)
"""Numbers of a disk that is full. What tensors are stored with gives no number."""

_STATE = re.compile(r"state-(\d{6})")
_logger = logging.getLogger(__name__)


class Workspace:
    """States of one node: the newest two are kept, and each appears whole or not at all.

    Args:
        folder: where they lie; made with the first one.
        every_s: least seconds between two states; 0 = a state wherever one is possible.
        clock: seconds, monotonic.
    """

    def __init__(self, folder: Path, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._every_s = every_s
        self._clock = clock
        self._last = clock()
        self._cost = 0.0
        self._refused = False

    def latest(self) -> Path | None:
        """Folder of the newest whole state; None where there is none. A damaged one is said, and set aside."""
        for number in sorted(self._numbers(), reverse=True):
            state = self._state(number)
            reason = self._damage(state)
            if reason is None:
                return state
            _logger.warning("the state in %s is damaged (%s): one that is older serves, if there is one", state, reason)
            state.rename(part_of(state))
        return None

    def _damage(self, state: Path) -> str | None:
        try:
            content = json.loads((state / _FILES).read_text(encoding="utf-8"))
            known = {name: FileEntry.model_validate(entry) for name, entry in content.items()}
        except (OSError, ValueError) as error:
            return f"{_FILES} cannot be read: {error}"
        there = {name: entry for name, entry in file_entries(state).items() if not name.endswith(f"/{_FILES}")}
        found = {name.partition("/")[2]: entry for name, entry in there.items()}
        wrong = sorted(name for name in {*known, *found} if known.get(name) != found.get(name))
        return f"{wrong[0]} is not what was saved" if wrong else None

    def due(self) -> bool:
        """Whether another state costs little beside what was done since the last one."""
        pause = max(self._every_s, self._cost / SHARE) if self._every_s else 0.0
        return self._clock() - self._last >= pause

    @deferred()
    def save(self, write: Callable[[Path], None]) -> None:
        """Lets `write` fill an empty folder, which becomes the newest state; the one before it stays, older ones go.

        A disk that refuses costs the state and nothing else: it is said once, and the node goes on. Where only the room
        for a third state is missing, the older of the two makes it, so `write` may be called twice.
        """
        begun = self._clock()
        try:
            try:
                self._add(write)
            except OSError as error:
                if error.errno not in _NO_ROOM or len(self._numbers()) < STATES_KEPT:
                    raise
                self._keep(STATES_KEPT - 1)
                self._add(write)
        except OSError as error:
            if not self._refused:
                _logger.warning("no state can be saved in %s (%s): a stop from here on loses more", self.folder, error)
            self._refused = True
        else:
            self._keep(STATES_KEPT)
        self._last = self._clock()
        self._cost = self._last - begun

    def _add(self, write: Callable[[Path], None]) -> None:
        """Makes the newest state, whole or not at all.

        Raises:
            OSError: the disk refused.
        """
        target = self._state(1 + max(self._numbers(), default=0))
        part = part_of(target)
        try:
            part.mkdir(parents=True)
            write(part)
            entries = {name.partition("/")[2]: entry.model_dump() for name, entry in file_entries(part).items()}
            (part / _FILES).write_text(json.dumps(entries), encoding="utf-8")
            flush(part)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _keep(self, count: int) -> None:
        """Only so many states stay, the newest."""
        for number in sorted(self._numbers(), reverse=True)[count:]:
            shutil.rmtree(self._state(number), ignore_errors=True)

    def place(self, name: str) -> Path:
        """A folder that stays until the node has stored everything, for what grows while it runs.

        Raises:
            OSError: it cannot be made.
        """
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def remove(self) -> None:
        """Everything is stored: nothing is needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

    def _state(self, number: int) -> Path:
        return self.folder / f"state-{number:06d}"

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        found = (_STATE.fullmatch(path.name) for path in self.folder.iterdir())
        return [int(match[1]) for match in found if match is not None]


_CURRENT: ContextVar[Workspace | None] = ContextVar("worldwise_workspace", default=None)


def workspace() -> Workspace | None:
    """That of the node that runs; None where nothing is kept."""
    return _CURRENT.get()


def set_workspace(found: Workspace | None) -> None:
    """Says which one the next node uses."""
    _CURRENT.set(found)
