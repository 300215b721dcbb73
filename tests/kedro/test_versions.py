"""What a run reads is settled when it begins: its own results, and what was the newest then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline, node
from kedro.runner import SequentialRunner

from worldwise.ledger.versions import pin_versions

NAMES = ("tasks", "model", "curves", "report", "notes")
EARLIER, OWN, LATER = (f"2026-01-0{day}T00.00.00.000Z" for day in (1, 2, 3))


def _catalog(root: Path, version: str, load: dict[str, str] | None = None) -> DataCatalog:
    kinds = {name: "OptionalJSONDataset" if name == "notes" else "JSONDataset" for name in NAMES}
    modules = {"OptionalJSONDataset": "optional", "JSONDataset": "atomic"}
    entries: dict[str, dict[str, Any]] = {
        name: {
            "type": f"worldwise.datasets.{modules[kind]}.{kind}",
            "filepath": (root / f"{name}.json").as_posix(),
            "versioned": True,
        }
        for name, kind in kinds.items()
    }
    return DataCatalog.from_config(entries, load_versions=load, save_version=version)


def _store(root: Path, version: str, *names: str) -> None:
    catalog = _catalog(root, version)
    for name in names:
        catalog.save(name, f"{name} of {version}")


def _pipeline(meanwhile: Callable[[], None], ran: list[str]) -> Pipeline:
    """tasks -> model and curves, then the report of everything; `meanwhile` happens between the two nodes."""

    def train(tasks: str) -> tuple[str, str]:
        ran.append("train")
        meanwhile()
        return f"model from {tasks}", "curves"

    def report(tasks: str, model: str, curves: str, notes: str | None) -> list[str | None]:
        ran.append("report")
        return [tasks, model, curves, notes]

    return Pipeline(
        [
            node(train, "tasks", ["model", "curves"], name="train"),
            node(report, ["tasks", "model", "curves", "notes"], "report", name="report"),
        ]
    )


def _run(root: Path, meanwhile: Callable[[], None], only_missing: bool = False, **load: str) -> tuple[Any, list[str]]:
    ran: list[str] = []
    pipeline, catalog = _pipeline(meanwhile, ran), _catalog(root, OWN, load)
    pin_versions(pipeline, catalog, only_missing)
    SequentialRunner().run(pipeline, catalog, only_missing_outputs=only_missing)
    return catalog.load("report"), ran


def test_a_run_beside_this_one_changes_nothing_for_it(tmp_path: Path) -> None:
    _store(tmp_path, EARLIER, "tasks", "model", "curves")
    read, _ = _run(tmp_path, lambda: _store(tmp_path, LATER, "tasks", "model", "curves", "report", "notes"))
    assert read == [f"tasks of {EARLIER}", f"model from tasks of {EARLIER}", "curves", None]


def test_runs_on_other_folders_do_not_meet(tmp_path: Path) -> None:
    for root in (tmp_path / "a", tmp_path / "b"):
        _store(root, EARLIER, "tasks")
    reads = []
    _run(tmp_path / "a", lambda: reads.append(_run(tmp_path / "b", lambda: None)[0]))
    assert reads == [[f"tasks of {EARLIER}", f"model from tasks of {EARLIER}", "curves", None]]


def test_a_version_that_is_asked_for_is_read(tmp_path: Path) -> None:
    _store(tmp_path, EARLIER, "tasks")
    _store(tmp_path, LATER, "tasks")
    assert _run(tmp_path, lambda: None, tasks=EARLIER)[0][0] == f"tasks of {EARLIER}"


def test_only_missing_outputs_reads_the_stored_ones(tmp_path: Path) -> None:
    _store(tmp_path, EARLIER, "tasks", "model", "curves")
    read, ran = _run(tmp_path, lambda: None, only_missing=True)
    assert ran == ["report"]
    assert read == [f"tasks of {EARLIER}", f"model of {EARLIER}", f"curves of {EARLIER}", None]


@pytest.mark.parametrize("before", [(), ("model", "curves")])
def test_a_node_that_was_stopped_between_its_outputs_is_made_again(tmp_path: Path, before: tuple[str, ...]) -> None:
    _store(tmp_path, "2026-01-01T00.00.00.000Z", "tasks", *before)
    _store(tmp_path, "2026-01-01T12.00.00.000Z", "model")
    read, ran = _run(tmp_path, lambda: None, only_missing=True)
    assert ran == ["train", "report"]
    assert read == [f"tasks of {EARLIER}", f"model from tasks of {EARLIER}", "curves", None]
