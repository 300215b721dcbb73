"""The wire between a stage that has something to tell and whoever listens.

A node asks for `reporter()` and hands it to its stage, which calls `log` and `progress` on it. Hooks
subscribe listeners around the node. Neither side knows the other. The subscriptions live in a context
variable, so that two runs in two threads do not hear each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    """What a stage can tell; the same methods as its own reporter protocol."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Numbers of one step of the stage's loop."""
        ...

    def progress(self, done: int, total: int, text: str) -> None:
        """`done` of `total` units of work are finished."""
        ...


_SUBSCRIBED: ContextVar[tuple[Listener, ...]] = ContextVar("worldwise_listeners", default=())


def subscribe(listener: Listener) -> None:
    """`listener` hears what nodes tell from now on."""
    _SUBSCRIBED.set((*_SUBSCRIBED.get(), listener))


def unsubscribe(listener: Listener) -> None:
    """`listener` hears no more; unknown ones are ignored."""
    _SUBSCRIBED.set(tuple(other for other in _SUBSCRIBED.get() if other is not listener))


class Broadcast:
    """Passes everything on to several listeners."""

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self._listeners = listeners

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for listener in self._listeners:
            listener.log(metrics, step)

    def progress(self, done: int, total: int, text: str) -> None:
        for listener in self._listeners:
            listener.progress(done, total, text)


def reporter() -> Broadcast:
    """A reporter for one node: reaches those who are subscribed now."""
    return Broadcast(_SUBSCRIBED.get())
