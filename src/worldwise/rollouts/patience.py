"""Calls into worlds, with a time limit where one is set."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class StepTimeout(RuntimeError):
    """A world did not answer in time. The message holds the stack it hung in."""


class _GivenUp(BaseException):
    """Raised inside of an abandoned call to end it."""


class Patience:
    """Runs calls, and gives up on those that take too long.

    Without a limit calls are just made. With one they run in a worker thread; the way there and back costs some hundred
    microseconds, so calls of a batch go together. A call that runs out of time is abandoned: the following ones get a
    new thread, and the old one gets an exception, which ends Python code at its next instruction; one that waits
    inside of C code (a socket, a lock) keeps its thread until that returns, but holds up neither play nor the
    program's end.

    Args:
        limit_s: seconds a call may take; 0 = no limit. One that hangs is noticed after at most twice as many.
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
        (result,) = self.call_all([function])
        if isinstance(result, Exception):
            raise result
        return result

    def call_all(self, functions: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """Each function's result or what it raised, called one after the other; `StepTimeout` for one that hung."""
        results: list[Result | Exception] = []
        if not self._limit:
            return [_outcome(function) for function in functions]
        while len(results) < len(functions):
            results += self._until_one_hangs(functions[len(results) :])
        return results

    def _until_one_hangs(self, functions: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        if self._worker is None:
            self._worker = _Worker()
        batch = _Batch(functions, self._limit)
        self._worker.batches.put(batch)
        done = -1
        while not batch.ended.wait(self._limit):
            # A copy: the thread goes on, and what it adds after it was given up on counts for nothing.
            results = list(batch.results)
            if len(results) == done:
                stack = self._worker.abandon()
                self._worker = None
                hung = StepTimeout(
                    f"no answer within step_timeout_s={self._limit}: raise it, or mend the world, which hung "
                    f"in\n{stack}"
                )
                return [*results, hung]
            done = len(results)
        return batch.results

    def close(self) -> None:
        """Let the worker thread end."""
        if self._worker is not None:
            self._worker.batches.put(None)
            self._worker = None


class _Batch(Generic[Result]):
    """Calls to make, and what came of them so far."""

    def __init__(self, functions: Sequence[Callable[[], Result]], limit: float) -> None:
        self._functions, self._limit = functions, limit
        self.results: list[Result | Exception] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Makes the calls."""
        for function in self._functions:
            begun = time.perf_counter()
            result = _outcome(function)
            taken = time.perf_counter() - begun
            if taken > self._limit:
                result = StepTimeout(f"an answer came after {taken:.3g} s, later than step_timeout_s={self._limit}")
            self.results.append(result)
        self.ended.set()


def _outcome(function: Callable[[], Result]) -> Result | Exception:
    try:
        return function()
    except Exception as error:
        return error


class _Worker:
    """A thread that makes calls; a daemon, so that a hung call cannot keep the program from ending."""

    def __init__(self) -> None:
        self.batches: SimpleQueue[_Batch[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="world", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while (batch := self.batches.get()) is not None:
                batch.run()
        except _GivenUp:
            return

    def abandon(self) -> str:
        """Give up on the running call; returns the stack that it hung in."""
        ident = self._thread.ident
        frame = sys._current_frames().get(ident) if ident is not None else None
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(ended meanwhile)"
        self.batches.put(None)
        if ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_GivenUp))
        return stack
