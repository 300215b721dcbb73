"""Ctrl-C, SIGTERM and a closing terminal (SIGHUP) as an ordinary error, so that a run ends in order.

Kedro calls its hooks and says how to go on only for exceptions below `Exception`; a KeyboardInterrupt or
a SIGTERM would leave the run's status open. Inside a node it is the other way round: code that tries again after
`Exception` (a world or an engine that fails) must not take a stop for one of those failures. So a signal
inside a node raises `StopNode`, which no such code catches, and the node's edge makes it `RunInterrupted`.

Neither comes in the middle of a write that must finish, see `worldwise.deferring`. What a library swallows all the
same (rich logs any `Exception` of its console and goes on) is raised once more before the next node.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from worldwise.deferring import put_off

P = ParamSpec("P")
R = TypeVar("R")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunInterrupted(RuntimeError):
    """The user or the system asked the run to stop."""


class StopNode(BaseException):
    """A stop on its way out of a node."""


_inside_node: ContextVar[bool] = ContextVar("inside_node", default=False)


def interruptible(function: Callable[P, R]) -> Callable[P, R]:
    """The node function, from which a stop comes out as `RunInterrupted`."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _inside_node.set(True)
        try:
            return function(*args, **kwargs)
        except StopNode as stop:
            raise RunInterrupted(str(stop)) from None
        finally:
            _inside_node.reset(token)

    return wrapped


class Interruption:
    """Turns the first signal into a stop; a second one acts as the system has it, at once.

    The first one lets a write finish. What is stored is whole either way, and a node goes on from its last state; only
    the record of the run in the tracker stays open after a second one. A signal that is ignored when the run begins
    (SIGHUP under nohup) stays ignored. Works in the main thread only, as signals do; elsewhere it does nothing.
    """

    def __init__(self) -> None:
        self._previous: dict[signal.Signals, Any] = {}
        self._heard = 0
        self._message = ""

    def install(self) -> None:
        """Begins to listen; a second call changes nothing."""
        if self._previous or threading.current_thread() is not threading.main_thread():
            return
        self._heard = 0
        wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._hear) for number in wanted}

    def remove(self) -> None:
        """Puts the earlier handlers back."""
        previous, self._previous = self._previous, {}
        for number, handler in previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises the stop that was heard, in case that what ran then has swallowed it.

        Raises:
            RunInterrupted: a signal was heard since `install`.
        """
        if self._heard:
            raise RunInterrupted(self._message)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard += 1
        if self._heard == 1:
            self._message = f"stopped by {signal.Signals(number).name}"
            stop = StopNode(self._message) if _inside_node.get() else RunInterrupted(self._message)
            if put_off(stop):
                return
            raise stop
        self.remove()
        signal.raise_signal(number)
