"""Which runs count as those of a process that has ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worldwise.tracking import process as process_module
from worldwise.tracking.process import MACHINE, PROCESS, has_ended, process_tags

IN_A_CONTAINER = "import json; from worldwise.tracking.process import process_tags; print(json.dumps(process_tags()))"


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_the_run_of_a_process_that_is_gone_has_ended() -> None:
    assert not has_ended(process_tags())
    assert has_ended({**process_tags(), PROCESS: f"{ended_pid()} 1700000000"})
    assert has_ended({**process_tags(), PROCESS: f"{os.getpid()} 1700000000"}), "the number was given anew"
    assert not has_ended({**process_tags(), PROCESS: "what is this"})


def test_another_start_of_the_system_cannot_be_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = {**process_tags(), PROCESS: f"{ended_pid()} 1700000000"}
    other = tmp_path / "boot_id"
    other.write_text("00000000-0000-4000-8000-000000000000\n")
    monkeypatch.setattr(process_module, "_BOOT", other)
    assert not has_ended(gone), "it may be another machine of the same name"
    monkeypatch.setattr(process_module, "_BOOT", tmp_path / "absent")
    assert MACHINE in process_tags()
    assert has_ended({**process_tags(), PROCESS: gone[PROCESS]}), "the name has to do where a system tells no more"


def test_a_container_of_the_same_name_is_another_machine() -> None:
    """With a pid namespace of its own, where its processes have numbers that may be free here."""
    unshare = shutil.which("unshare")
    command = [str(unshare), "--pid", "--fork", "--mount-proc", sys.executable, "-c", IN_A_CONTAINER]
    found = None if unshare is None else subprocess.run(command, capture_output=True, text=True, check=False)
    if found is None or found.returncode:
        pytest.skip("a pid namespace needs rights that this process does not have")
    tags = json.loads(found.stdout)
    here = process_tags()
    assert {name for name in tags if tags[name] == here[name]} == {process_module.HOST}
    assert not has_ended({**tags, PROCESS: f"{ended_pid()} 1700000000"})
