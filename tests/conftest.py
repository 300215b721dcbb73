"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell that starts the tests in its background has them ignore Ctrl-C, which what they start would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
