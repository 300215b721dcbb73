"""Progress with time left: a bar in a terminal, sparse log lines elsewhere; listeners hear only their node."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from rich.console import Console

from worldwise.tracking.listeners import reporter, subscribe, unsubscribe
from worldwise.tracking.progress import NodeProgress, as_clock, time_left


@pytest.mark.parametrize(
    ("elapsed", "done", "total", "left"),
    [(10.0, 5, 20, 30.0), (10.0, 0, 20, None), (8.0, 4, 4, 0.0), (90.0, 1, 1024, None), (10.0, 5, 100, 190.0)],
)
def test_time_left(elapsed: float, done: int, total: int, left: float | None) -> None:
    assert time_left(elapsed, done, total) == left


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (42.4, "0:42"), (725, "12:05"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert as_clock(seconds) == text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_log_lines_are_sparse_and_say_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    line = NodeProgress("collect", Console(file=io.StringIO()), clock)
    with caplog.at_level(logging.INFO, logger="worldwise.tracking.progress"):
        for done in range(1, 61):
            clock.now = float(done)
            line.progress(done, 60, "success 10 %")
    assert caplog.messages == [
        "collect 20/60 (33%), 0:20, 0:40 left, success 10 %",
        "collect 40/60 (67%), 0:40, 0:20 left, success 10 %",
        "collect 60/60 (100%), 1:00, success 10 %",
    ]


def test_a_terminal_gets_a_bar() -> None:
    output, clock = io.StringIO(), Clock()
    line = NodeProgress("collect", Console(file=output, force_terminal=True, width=100), clock)
    clock.now = 30.0
    line.progress(10, 40, "success 10 %")
    line.close()
    shown = output.getvalue()
    assert "collect" in shown
    assert "25%" in shown
    assert "1:30 left success 10 %" in shown


class Heard:
    def __init__(self) -> None:
        self.lines: list[object] = []

    def log(self, metrics: object, step: int) -> None:
        self.lines.append((metrics, step))

    def progress(self, done: int, total: int, text: str) -> None:
        self.lines.append((done, total, text))


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    subscribe(listener)
    yield listener
    unsubscribe(listener)


def test_listeners_hear_what_a_node_tells(heard: Heard) -> None:
    tell = reporter()
    tell.log({"loss": 1.0}, 3)
    tell.progress(1, 2, "half")
    unsubscribe(heard)
    reporter().log({"loss": 2.0}, 4)
    assert heard.lines == [({"loss": 1.0}, 3), (1, 2, "half")]
