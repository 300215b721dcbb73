"""Ctrl-C and SIGTERM as an ordinary error, so that a run ends in order.

Kedro calls its hooks and says how to go on only for exceptions below `Exception`; a KeyboardInterrupt or
a SIGTERM would leave the run's status open.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class RunInterrupted(RuntimeError):
    """The user or the system asked the run to stop."""


class Interruption:
    """Turns the first signal into `RunInterrupted`; a second one acts as the system has it.

    Works in the main thread only, as Python's signals do; elsewhere it does nothing.
    """

    def __init__(self) -> None:
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Begins to listen; a second call changes nothing."""
        if self._previous or threading.current_thread() is not threading.main_thread():
            return
        self._previous = {number: signal.signal(number, self._raise) for number in _SIGNALS}

    def remove(self) -> None:
        """Puts the earlier handlers back."""
        previous, self._previous = self._previous, {}
        for number, handler in previous.items():
            signal.signal(number, handler)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.remove()
        raise RunInterrupted(f"stopped by {signal.Signals(number).name}")
