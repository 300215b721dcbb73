"""What is handed to a server in order, in the background, whatever the server does meanwhile."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_POLL_S = 0.02
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_CLOSING_PAUSE_S = 0.5
_REFUSALS = 3
"""So often a parcel is offered to a server that is there and does not take it."""


class Postmaster(Protocol):
    """What the outbox asks and tells while it works, from its own thread unless said otherwise."""

    def refuses(self, error: Exception) -> bool:
        """Whether a failure is the parcel's and the server is there; otherwise the parcel waits until it is."""
        ...

    def silent(self, error: Exception) -> None:
        """The server does not answer; said again only after it did. Comes from who waits, too."""
        ...

    def answers(self) -> None:
        """It answers again."""
        ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something to hand over.

    Attributes:
        send: called until it returns, so it may be called again after it has done its work.
        lost: told the error if the parcel is given up because it is refused.
        last: still tried when time runs out at the end and all others are given up.
    """

    send: Callable[[], object]
    lost: Callable[[Exception], None]
    last: bool = False


class Outbox:
    """Hands parcels over one after the other in a daemon thread: the process ends whatever that thread is at.

    Putting a parcel in never waits. While the server does not answer, the first parcel is tried again after pauses of 1
    to 30 seconds and the others wait behind it.

    Args:
        postmaster: see there.
        patience_s: a server that takes longer for an answer does not answer.
    """

    def __init__(self, postmaster: Postmaster, patience_s: float) -> None:
        self._postmaster = postmaster
        self._patience = patience_s
        self._parcels: deque[Parcel] = deque()
        self._filled = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._silent = False
        self._begun: float | None = None
        self._ended = False

    def put(self, parcel: Parcel) -> None:
        """Takes a parcel; nothing happens with it after `finish`."""
        self._parcels.append(parcel)
        self._filled.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="worldwise tracking", daemon=True)
            self._thread.start()

    def wait(self, event: threading.Event, seconds: float | None = None) -> bool:
        """Whether something has happened that a parcel brings about; waits for it while the server answers.

        Args:
            event: set by the parcel.
            seconds: at most; None = as long as any answer may take.
        """
        limit = time.monotonic() + (self._patience if seconds is None else seconds)
        while not self._silent and not event.wait(_POLL_S) and time.monotonic() < limit:
            self._notice()
        return event.is_set()

    def goes_on(self) -> None:
        """From inside of a parcel that asks for many things: one of them was answered."""
        self._begun = time.monotonic()

    def works(self) -> None:
        """From inside of a parcel: what comes now takes its time here, not at the server."""
        self._begun = None

    @property
    def is_silent(self) -> bool:
        """Whether the server did not answer when it was last asked."""
        return self._silent

    def finish(self, seconds: float) -> bool:
        """Waits until everything is handed over, and ends.

        A server that does not answer gets `patience_s`, one that does `seconds`. If it hangs at one parcel then, or has
        just more to take, those that are the `last` get `patience_s` more.

        Returns:
            Whether everything was handed over.
        """
        begun = time.monotonic()
        self._hurry.set()
        while self._parcels:
            time.sleep(_POLL_S)
            self._notice()
            if time.monotonic() - begun > (self._patience if self._silent else seconds):
                break
        self._ended = True
        self._filled.set()
        left = list(self._parcels)
        if left and (self._hangs() or not self._silent):
            self._send_last([parcel for parcel in left if parcel.last])
        return not left

    def _send_last(self, parcels: list[Parcel]) -> None:
        """In a thread of their own, as the other one may hang."""

        def send() -> None:
            for parcel in parcels:
                try:
                    parcel.send()
                except Exception:
                    continue

        thread = threading.Thread(target=send, name="worldwise tracking, last", daemon=True)
        thread.start()
        thread.join(self._patience)

    def _notice(self) -> None:
        if self._hangs():
            self._falls_silent(TimeoutError(f"no answer within {self._patience:g} s"))

    def _hangs(self) -> bool:
        """Whether the server takes too long over what it was sent last."""
        begun = self._begun
        return begun is not None and time.monotonic() - begun > self._patience

    def _serve(self) -> None:
        while not self._ended:
            if not self._parcels:
                self._filled.clear()
                # Something may have come before that line.
                if not self._parcels and not self._ended:
                    self._filled.wait()
            elif self._hand_over(self._parcels[0]):
                self._parcels.popleft()

    def _hand_over(self, parcel: Parcel) -> bool:
        """Tries until the parcel is taken or refused for good; False where the end came first."""
        refusals, pause = 0, _FIRST_PAUSE_S
        while not self._ended:
            self._begun = time.monotonic()
            try:
                parcel.send()
            except Exception as error:
                if self._postmaster.refuses(error):
                    refusals += 1
                    self._speaks()
                    if refusals == _REFUSALS:
                        parcel.lost(error)
                        return True
                    pause = _FIRST_PAUSE_S
                else:
                    self._falls_silent(error)
            else:
                self._speaks()
                return True
            finally:
                self._begun = None
            self._rest(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE_S)
        return False

    def _rest(self, seconds: float) -> None:
        if self._hurry.wait(seconds):
            time.sleep(_CLOSING_PAUSE_S)

    def _speaks(self) -> None:
        if self._silent and not self._ended:
            self._silent = False
            self._postmaster.answers()

    def _falls_silent(self, error: Exception) -> None:
        if not self._silent and not self._ended:
            self._silent = True
            self._postmaster.silent(error)
