"""Calls into worlds, with a time limit where one is set."""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")


class StepTimeout(RuntimeError):
    """A world did not answer in time. The message holds the stack it hung in."""


class _GivenUp(BaseException):
    """Raised inside of an abandoned call to end it."""


class Patience:
    """Runs calls, and gives up on those that take too long.

    Without a limit a call is just made. With one it runs in a worker thread, which costs some tens of
    microseconds. A call that runs out of time is abandoned: the next call gets a new thread, and the old
    one gets an exception, which ends Python code at its next instruction; one that waits inside of C code
    (a socket, a lock) keeps its thread until that returns, but holds up neither play nor the program's end.

    Args:
        limit_s: seconds a call may take; 0 = no limit.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit = limit_s
        self._worker: _Worker | None = None

    def call(self, function: Callable[[], Result]) -> Result:
        """The function's result.

        Raises:
            StepTimeout: it took too long.
            Exception: whatever the function raised.
        """
        if not self._limit:
            return function()
        if self._worker is None:
            self._worker = _Worker()
        box: SimpleQueue[tuple[bool, Result | BaseException]] = SimpleQueue()
        self._worker.calls.put(lambda: box.put(_outcome(function)))
        try:
            worked, result = box.get(timeout=self._limit)
        except Empty:
            stack = self._worker.abandon()
            self._worker = None
            raise StepTimeout(
                f"no answer within step_timeout_s={self._limit}: raise it, or mend the world, which hung in\n{stack}"
            ) from None
        if worked:
            return result  # type: ignore[return-value]
        raise result  # type: ignore[misc]

    def close(self) -> None:
        """Let the worker thread end."""
        if self._worker is not None:
            self._worker.calls.put(None)
            self._worker = None


def _outcome(function: Callable[[], Result]) -> tuple[bool, Result | BaseException]:
    try:
        return True, function()
    except Exception as error:
        return False, error


class _Worker:
    """A thread that makes calls; a daemon, so that a hung call cannot keep the program from ending."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="world", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while (call := self.calls.get()) is not None:
                call()
        except _GivenUp:
            return

    def abandon(self) -> str:
        """Give up on the running call; returns the stack that it hung in."""
        ident = self._thread.ident
        frame = sys._current_frames().get(ident) if ident is not None else None
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(ended meanwhile)"
        self.calls.put(None)
        if ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_GivenUp))
        return stack
