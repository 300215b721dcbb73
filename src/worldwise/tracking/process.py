"""Which process a tracked run belongs to, so that the run of one that was killed does not count as running for ever."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

HOST, MACHINE, PROCESS = "worldwise.host", "worldwise.machine", "worldwise.process"
_TOLERANCE_S = 10.0
"""The system's clock may have been set between two readings of when a process began."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def process_tags() -> dict[str, str]:
    """Tags that name this machine and this process: `<pid> <seconds since 1970 at which it began>`."""
    pid = os.getpid()
    began = f"{pid} {psutil.Process(pid).create_time():.0f}"
    return {HOST: socket.gethostname(), MACHINE: machine(), PROCESS: began}


def machine() -> str:
    """Where a process number means something: this start of the system, and the pid namespace in it.

    Containers may share a name and numbers of processes, but not the namespace. The name alone has to do where a system
    does not tell; the text is empty then.
    """
    try:
        return f"{_BOOT.read_text(encoding='utf-8').strip()} {os.readlink(_NAMESPACE)}"
    except OSError:
        return ""


def has_ended(tags: Mapping[str, str]) -> bool:
    """Whether the process of a run has ended; False where that cannot be said from here."""
    if tags.get(HOST) != socket.gethostname() or tags.get(MACHINE, "") != machine():
        return False
    pid, _, began = tags.get(PROCESS, "").partition(" ")
    if not (pid.isdigit() and began.isdigit()):
        return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - int(began)) > _TOLERANCE_S
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
