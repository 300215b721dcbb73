"""How a stage tells the outside how it is going: one small protocol, no tracker, no torch.

A stage calls `log` with named numbers at a step and `progress` with how far it is. Who listens (a
progress bar, an experiment tracker, a test) is not the stage's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Reporter(Protocol):
    """A listener of a stage."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Numbers of one step of the stage's loop; names are stable over steps, values finite."""
        ...

    def progress(self, done: int, total: int, text: str) -> None:
        """`done` of `total` units of work are finished; `text` says what matters now, in a few words."""
        ...


class Silent:
    """A listener that ignores everything."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Ignores the numbers."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Ignores the progress."""


@dataclass
class CurveRecorder:
    """Keeps every logged step as a row, and passes everything on to another listener.

    Attributes:
        inner: who else listens.
        rows: one mapping per `log` call, its step under `step`; the curves of a stage.
    """

    inner: Reporter
    rows: list[dict[str, float]] = field(default_factory=list)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keeps the numbers; two calls for one step become one row."""
        if self.rows and self.rows[-1]["step"] == step:
            self.rows[-1].update(metrics)
        else:
            self.rows.append({"step": float(step), **metrics})
        self.inner.log(metrics, step)

    def progress(self, done: int, total: int, text: str) -> None:
        """Passes the progress on."""
        self.inner.progress(done, total, text)
