"""Signals end a run in order, however often and from where they come."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from worldwise.tracking.interruption import Interruption, RunInterrupted, interruptible

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def listening() -> Iterator[Interruption]:
    # As a terminal has it: under nohup the tests themselves begin with SIGHUP ignored.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interruption = Interruption()
    interruption.install()
    yield interruption
    interruption.remove()
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_is_an_ordinary_error_at_the_edge_of_a_node(listening: Interruption, number: signal.Signals) -> None:
    def node() -> None:
        try:
            os.kill(os.getpid(), number)
        except Exception:
            pytest.fail("code that tries again must not swallow a stop")

    with pytest.raises(RunInterrupted, match=f"stopped by {number.name}"):
        interruptible(node)()


def test_the_second_signal_ends_at_once(listening: Interruption) -> None:
    with pytest.raises(RunInterrupted):
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_handlers_come_back_and_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handlers = [signal.getsignal(number) for number in ALL]
        interruption = Interruption()
        interruption.install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "under nohup a run goes on"
        assert signal.getsignal(signal.SIGINT) is not handlers[0]
        interruption.remove()
        assert [signal.getsignal(number) for number in ALL] == handlers
    finally:
        signal.signal(signal.SIGHUP, before)
