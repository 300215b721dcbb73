"""Parcels arrive in order, whatever the server does, and never hold up who sends them or the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worldwise.tracking import outbox as outbox_module
from worldwise.tracking.outbox import Outbox, Parcel


class Server:
    """One that is there or not, and takes what it is sent or not."""

    def __init__(self) -> None:
        self.there = True
        self.got: list[int] = []
        self.lost: list[int] = []
        self.said: list[str] = []
        self.gate = threading.Event()

    def refuses(self, error: Exception) -> bool:
        return self.there

    def silent(self, error: Exception) -> None:
        self.said.append(f"silent: {error}")

    def answers(self) -> None:
        self.said.append("answers")

    def parcel(self, number: int, refused: bool = False, last: bool = False) -> Parcel:
        def send() -> None:
            if not self.there:
                raise ConnectionError("nobody is there")
            if refused:
                raise ValueError("not this one")
            self.got.append(number)

        return Parcel(send, lambda error: self.lost.append(number), last)

    def stuck(self) -> Parcel:
        return Parcel(self.gate.wait, lambda error: None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(outbox_module, "_FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(outbox_module, "_CLOSING_PAUSE_S", 0.02)
    made = Server()
    yield made
    made.gate.set()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_what_a_server_misses_arrives_in_order_once_it_answers(server: Server) -> None:
    outbox = Outbox(server, 10.0)
    outbox.put(server.parcel(0))
    until(lambda: server.got == [0])
    server.there = False
    for number in range(1, 50):
        outbox.put(server.parcel(number))
    until(lambda: bool(server.said))
    time.sleep(0.2)
    assert server.said == ["silent: nobody is there"], "once, however often it is tried"
    server.there = True
    assert outbox.finish(20.0)
    assert server.got == list(range(50))
    assert server.said == ["silent: nobody is there", "answers"]
    assert server.lost == []


def test_what_is_refused_is_given_up_and_holds_up_nothing(server: Server) -> None:
    outbox = Outbox(server, 10.0)
    for number in range(4):
        outbox.put(server.parcel(number, refused=number == 1))
    assert outbox.finish(20.0)
    assert server.got == [0, 2, 3]
    assert server.lost == [1]
    assert server.said == [], "it answers"


def test_a_server_that_hangs_is_waited_for_once_and_asked_for_the_last_parcels_at_the_end(server: Server) -> None:
    outbox = Outbox(server, 0.5)
    outbox.put(server.stuck())
    begun = time.monotonic()
    for number in range(1000):
        outbox.put(server.parcel(number, last=number >= 998))
    assert time.monotonic() - begun < 0.5, "who sends does not wait"
    never = threading.Event()
    assert not outbox.wait(never, 20.0)
    assert time.monotonic() - begun < 5.0, "a server that hangs is found out before the whole time is over"
    assert server.said == ["silent: no answer within 0.5 s"]
    begun = time.monotonic()
    assert not outbox.wait(never, 20.0)
    assert time.monotonic() - begun < 0.2, "and not waited for a second time"
    assert not outbox.finish(20.0)
    assert time.monotonic() - begun < 5.0
    assert server.got == [998, 999]


def test_many_answers_in_one_parcel_are_no_silence(server: Server) -> None:
    outbox = Outbox(server, 0.5)
    done = threading.Event()

    def send() -> None:
        for _ in range(10):
            time.sleep(0.1)
            outbox.goes_on()
        done.set()

    outbox.put(Parcel(send, lambda error: None))
    assert outbox.wait(done, 20.0)
    assert outbox.finish(20.0)
    assert server.said == []


def test_a_process_ends_whatever_the_server_is_at() -> None:
    code = (
        "import time\n"
        "from tests.tracking.test_outbox import Server\n"
        "from worldwise.tracking.outbox import Outbox\n"
        "server = Server()\n"
        "outbox = Outbox(server, 0.5)\n"
        "outbox.put(server.stuck())\n"
        "assert not outbox.finish(20.0)\n"
        "print(time.time(), flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert time.time() - float(said.stdout) < 10.0
