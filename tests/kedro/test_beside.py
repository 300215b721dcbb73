"""Two runs that would make the same: the second waits for the first and takes its results over."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks
from kedro.framework.project import settings
from kedro.pipeline import Pipeline
from kedro.runner import SequentialRunner

from tests.ledger.toy import EARLIER, LATER, Signing, Toy
from worldwise.hooks.beside import BesideHooks
from worldwise.ledger.plan import Planner
from worldwise.ledger.run import LedgerRun
from worldwise.ledger.runs import LiveRuns
from worldwise.ledger.workspace import WORK_FOLDER
from worldwise.pipelines.wiring import node

OTHER = """
import sys
from pathlib import Path
from worldwise.ledger.runs import LiveRuns, RunEntry
runs = LiveRuns(Path(sys.argv[1]))
entry = RunEntry.of_this_process("other", "kedro run")
assert runs.claim(sys.argv[2], entry) is None
print("ready", flush=True)
sys.stdin.readline()
runs.leave()
"""


def _pipeline(toy: Toy) -> Pipeline:
    """The toy's nodes as the project wires its own."""
    return Pipeline([node(own.func, own._inputs, own._outputs, name=own.name) for own in toy.pipeline().nodes])


def _run(toy: Toy, version: str, hooks: BesideHooks, only_missing: bool) -> list[str]:
    toy.ran.clear()
    around = toy.around(version)
    run = LedgerRun(around, version)
    pipeline = _pipeline(toy)
    run.begin(pipeline, only_missing)
    manager = _create_hook_manager()
    _register_hooks(manager, (hooks, Signing(run)))
    params: dict[str, Any] = {"run_id": version, "only_missing_outputs": only_missing}
    manager.hook.before_pipeline_run(run_params=params, pipeline=pipeline, catalog=around.catalog)
    SequentialRunner().run(pipeline, around.catalog, manager, only_missing_outputs=only_missing)
    manager.hook.after_pipeline_run(run_params=params, run_result={}, pipeline=pipeline, catalog=around.catalog)
    return list(toy.ran)


@pytest.mark.parametrize("only_missing", [True, False])
def test_the_second_run(toy_with_tasks: Toy, caplog: pytest.LogCaptureFixture, only_missing: bool) -> None:
    toy = toy_with_tasks
    hooks = BesideHooks()
    hooks._folder = toy.root / "work"
    key = Planner(toy.around(LATER)).plan(toy.pipeline())[1].key
    assert key is not None
    command = [sys.executable, "-c", OTHER, str(toy.root / "work"), key.digest]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        caplog.at_level(logging.INFO),
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        moved: list[tuple[Path, Path]] = []
        if only_missing:
            # The other run ends while this one waits for it, and what it made is there then.
            Toy(toy.root).run(EARLIER, nodes=("train",))
            moved = [(toy.place(name, EARLIER).parent, toy.root / f"hidden_{name}") for name in ("model", "curves")]
            for folder, hidden in moved:
                folder.rename(hidden)
        listener = _Listener(other, lambda: _back(moved))
        logger = logging.getLogger("worldwise.hooks.beside")
        logger.addHandler(listener)
        try:
            ran = _run(toy, LATER, hooks, only_missing)
        finally:
            logger.removeHandler(listener)
            other.kill()
    assert toy.load("report", LATER) == ["tasks", "model of tasks at 0.1", "curves", None]
    if only_missing:
        assert ran == ["report"]
        assert "train waits for run other (process" in caplog.text
        assert f"train takes the results of run {EARLIER} over" in caplog.text
        assert toy.around(LATER).catalog["model"].list_versions(full_path=False) == [LATER, EARLIER]
    else:
        assert ran == ["prepare", "train", "report"]
        assert (
            "is making the same with the same code, parameters and inputs; this run makes it once more" in caplog.text
        )


@pytest.fixture
def toy_with_tasks(tmp_path: Path) -> Toy:
    """The tasks are stored, the rest is not."""
    toy = Toy(tmp_path)
    toy.run("2025-12-31T00.00.00.000Z", nodes=("prepare",))
    return toy


def _back(moved: list[tuple[Path, Path]]) -> None:
    for folder, hidden in moved:
        hidden.rename(folder)


class _Listener(logging.Handler):
    """Does something, and ends the other process, when the run says that it waits."""

    def __init__(self, other: subprocess.Popen[str], action: Callable[[], None]) -> None:
        super().__init__()
        self.other, self.action = other, action

    def emit(self, record: logging.LogRecord) -> None:
        if "waits for run" in record.getMessage():
            self.action()
            assert self.other.stdin is not None
            self.other.stdin.write("\n")
            self.other.stdin.flush()


class RefusedError(Exception):
    """Stands for what makes a run end before its first node."""


def test_a_run_is_seen_to_be_at_work_before_it_settles_what_it_reads(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def begin(own: LedgerRun, pipeline: Pipeline, only_missing: bool) -> list[Any]:
        seen.extend(entry.run_id for entry in LiveRuns(tmp_path / WORK_FOLDER).alive())
        assert own.run_id in seen
        raise RefusedError

    monkeypatch.setattr(LedgerRun, "begin", begin)
    for _ in range(2):
        seen.clear()
        with pytest.raises(RefusedError):
            run("data_collection", tmp_path)
        assert len(seen) == 1, "nothing is left of a run of this process that was refused"


def test_what_a_node_makes_is_signed_before_others_look_who_is_at_it(project: Path) -> None:
    manager = _create_hook_manager()
    _register_hooks(manager, settings.HOOKS)

    def order(calls: Any) -> list[str]:
        return [type(own.plugin).__name__ for own in reversed(calls.get_hookimpls())]

    begins = order(manager.hook.before_pipeline_run)
    assert begins[:3] == ["PreflightHooks", "BesideHooks", "VersionHooks"]
    nodes = order(manager.hook.before_node_run)
    assert nodes[0] == "VersionHooks"
    assert nodes.index("BesideHooks") < nodes.index("MlflowHooks"), "which looks into the workspace"
