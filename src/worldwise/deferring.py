"""Writes that a stop lets finish. Imports the standard library alone.

A signal's handler runs between any two instructions, so a stop that it raises may come in the middle of a write, which
is given up then. Inside of `deferred` it waits for the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_logger = logging.getLogger(__name__)


class _Sections:
    """Those that are open in the main thread, where Python's signal handlers run, and the stop that waits for them."""

    open = 0
    waiting: BaseException | None = None


@contextmanager
def deferred() -> Iterator[None]:
    """A block, or as `@deferred()` a function, that a stop lets finish: it is raised at the end of the outermost one.

    An error of the block that meets a stop is logged, and the stop's cause. What is no `Exception` (a KeyboardInterrupt
    of the second Ctrl-C) ends the block at once, and the stop with it. Outside of the main thread nothing is deferred.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Sections.open += 1
    try:
        yield
    except Exception as error:
        stop = _left()
        if stop is None:
            raise
        _logger.error("%s", error)
        raise stop from error
    except BaseException:
        _left()
        raise
    stop = _left()
    if stop is not None:
        raise stop


def _left() -> BaseException | None:
    """Closes a section. Returns the stop that waited for it, if it was the outermost."""
    _Sections.open -= 1
    if _Sections.open:
        return None
    stop, _Sections.waiting = _Sections.waiting, None
    return stop


def put_off(stop: BaseException) -> bool:
    """For a signal's handler: keeps a stop until the end of the section that is open; False where none is."""
    if not _Sections.open:
        return False
    _Sections.waiting = stop
    return True
