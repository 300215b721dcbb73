"""The folder in which a node keeps where it stands, so that a killed one goes on.

It is named after the node and its key (code, parameters, inputs), so only a run that would make the same finds it. Once
everything that the node makes is stored it goes.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

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

_FILES = "files.json"
_STATE = re.compile(r"state-(\d{6})")
_logger = logging.getLogger(__name__)


class Workspace:
    """States of one node: the newest is kept, and each appears whole or not at all.

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
        """Folder of the newest state; None where there is none. A damaged one is said, and set aside."""
        for number in sorted(self._numbers(), reverse=True):
            state = self._state(number)
            reason = self._damage(state)
            if reason is None:
                return state
            _logger.warning("the state in %s is damaged (%s): the node does not go on from it", state, reason)
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

    def save(self, write: Callable[[Path], None]) -> None:
        """Lets `write` fill an empty folder, which becomes the newest state; older ones go.

        A disk that refuses costs the state and nothing else: it is said once, and the node goes on.
        """
        begun = self._clock()
        target = self._state(1 + max(self._numbers(), default=0))
        part = part_of(target)
        try:
            part.mkdir(parents=True)
            write(part)
            entries = {name.partition("/")[2]: entry.model_dump() for name, entry in file_entries(part).items()}
            (part / _FILES).write_text(json.dumps(entries), encoding="utf-8")
            flush(part)
            part.rename(target)
        except OSError as error:
            if not self._refused:
                _logger.warning("no state can be saved in %s (%s): a stop from here on loses more", self.folder, error)
            self._refused = True
        else:
            for number in self._numbers():
                if self._state(number) != target:
                    shutil.rmtree(self._state(number), ignore_errors=True)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self._last = self._clock()
        self._cost = self._last - begun

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
