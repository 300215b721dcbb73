"""Results that a node takes over from another run instead of making them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ParamSpec

P = ParamSpec("P")

_TAKEN_OVER: ContextVar[Sequence[Any] | None] = ContextVar("worldwise_taken_over", default=None)


def take_over(results: Sequence[Any] | None) -> None:
    """Says what the next node hands on, one value per output; None lets it work."""
    _TAKEN_OVER.set(results)


def handing_on(function: Callable[P, Any]) -> Callable[P, Any]:
    """The node function, which hands on what was taken over for it instead of working."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        results = _TAKEN_OVER.get()
        if results is None:
            return function(*args, **kwargs)
        return results[0] if len(results) == 1 else tuple(results)

    return wrapped
