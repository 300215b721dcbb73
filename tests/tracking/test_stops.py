"""Stops that come where somebody swallows them."""

from __future__ import annotations

import io
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.hooks import hook_impl
from rich.console import Console
from rich.logging import RichHandler

from tests.tracking.toy import run_toy
from worldwise.tracking.interruption import RunInterrupted

_logger = logging.getLogger(__name__)


class Terminal(io.StringIO):
    """One that is written to when the user stops the run."""

    heard = False

    def write(self, text: str) -> int:
        if not self.heard:
            self.heard = True
            os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


class Says:
    @hook_impl
    def after_dataset_saved(self, dataset_name: str) -> None:
        _logger.warning("%s is stored", dataset_name)


def test_a_stop_that_a_log_line_swallows_comes_before_the_next_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def first(given: Any) -> dict[str, Any]:
        ran.append("first")
        return {}

    def second(given: Any) -> dict[str, Any]:
        ran.append("second")
        return {}

    # What a handler of logging does with an error of its own is to print it.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = RichHandler(console=Console(file=Terminal()))
    _logger.addHandler(handler)
    try:
        with pytest.raises(RunInterrupted, match="stopped by SIGTERM"):
            run_toy(tmp_path, [first, second], {"enabled": False}, [Says()])
    finally:
        _logger.removeHandler(handler)
    assert ran == ["first"]
    assert (tmp_path / "08_reporting/first_made.json").is_dir(), "what was stored before is kept"
