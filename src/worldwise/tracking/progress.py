"""Progress with the time that is left: a bar in a terminal, log lines otherwise."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

LOG_EVERY_S = 20.0
"""Seconds between two log lines of one node."""

REFRESH_EVERY_S = 0.2
"""Seconds between two drawings of the bar."""

_logger = logging.getLogger(__name__)


SURE_FROM = 0.05
"""Share of the work behind which the rest can be judged: the first episodes of a batch end long before the others, and
what comes before the first unit (loading a model, starting workers) is no measure of the second."""


def time_left(elapsed: float, done: int, total: int) -> float | None:
    """Seconds left if the rest goes as fast as what is done; None before enough is done to tell."""
    return elapsed * (total - done) / done if done and done >= SURE_FROM * total else None


def as_clock(seconds: float) -> str:
    """`0:42`, `12:05` or `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class NodeProgress:
    """The progress line of one node. A node that never tells how far it is shows none.

    Args:
        name: the node's name.
        console: where a bar would be drawn; log lines are written where it is no terminal.
        clock: seconds, monotonic.
    """

    def __init__(self, name: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._console = console or get_console()
        self._clock = clock
        self._start = clock()
        self._shown: float | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Numbers are not progress: ignored."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Shows that `done` of `total` are finished, at most every few moments and always at the end."""
        now = self._clock()
        pause = REFRESH_EVERY_S if self._console.is_terminal else LOG_EVERY_S
        if done < total and now - (self._start if self._shown is None else self._shown) < pause:
            return
        self._shown = now
        left = time_left(now - self._start, done, total)
        left_text = "" if left is None or done >= total else f"{as_clock(left)} left"
        if self._console.is_terminal:
            self._draw(done, total, left_text, text)
        else:
            share = done / total if total else 1.0
            parts = [f"{self._name} {done}/{total} ({share:.0%})", as_clock(now - self._start), left_text, text]
            _logger.info(", ".join(part for part in parts if part))

    def close(self) -> None:
        """Leaves the last state of the bar on the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, done: int, total: int, left: str, text: str) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[left]} {task.fields[text]}"),
                console=self._console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task(self._name, total=total, left=left, text=text)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, left=left, text=text, refresh=True)
