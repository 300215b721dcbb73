"""Calls that are waited for only so long: what answers late must not hold a run up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class Caller:
    """Calls functions one after the other in a thread of its own, which ends with the process whatever it is at."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], Result], seconds: float) -> Result:
        """What the function returns or raises.

        Raises:
            TimeoutError: it took longer; it goes on in its thread, and later calls wait behind it.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="worldwise tracking", daemon=True)
            self._thread.start()
        future: Future[Result] = Future()
        self._calls.put((future, function))
        try:
            return future.result(seconds)
        except TimeoutError as error:
            if future.done():
                raise
            raise TimeoutError(f"no answer within {seconds:g} s") from error

    def _serve(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
