"""Which process a tracked run belongs to, so that the run of one that was killed does not count as running for ever."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import psutil

HOST, PROCESS = "worldwise.host", "worldwise.process"
_TOLERANCE_S = 10.0
"""The system's clock may have been set between two readings of when a process began."""


def process_tags() -> dict[str, str]:
    """Tags that name this machine and this process: `<pid> <seconds since 1970 at which it began>`."""
    pid = os.getpid()
    return {HOST: socket.gethostname(), PROCESS: f"{pid} {psutil.Process(pid).create_time():.0f}"}


def has_ended(tags: Mapping[str, str]) -> bool:
    """Whether the process of a run has ended; False where that cannot be said from here."""
    if tags.get(HOST) != socket.gethostname():
        return False
    pid, _, began = tags.get(PROCESS, "").partition(" ")
    if not (pid.isdigit() and began.isdigit()):
        return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - int(began)) > _TOLERANCE_S
    except psutil.NoSuchProcess:
        return True
