"""Every `kedro run` as a run in MLflow, every training node as a child of it.

mlflow is imported when the first node starts, so that other commands do not pay for it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.ledger.provenance import made_now, set_made
from worldwise.ledger.stored import place_of
from worldwise.ledger.workspace import workspace
from worldwise.tracking.config import MlflowConfig
from worldwise.tracking.flatten import flatten, numbers
from worldwise.tracking.interruption import RunInterrupted
from worldwise.tracking.listeners import subscribe, unsubscribe
from worldwise.tracking.source import git_tags
from worldwise.tracking.store import Status, TrackingStore

TRACKED_TAGS = {"train", "collect"}
"""Nodes with one of these tags get a child run with their curves."""

_PARAMETER = "params:"

_NOTE = "mlflow_run"
"""File in a node's workspace that names its run."""

_RESULTS = "08_reporting"
"""Layer of metrics, figures and reports: what of it is one small file is copied to the tracker."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A listener that writes a node's numbers into its run.

    Attributes:
        store, run: where to.
        known: metric -> steps that the run has already, of a node that goes on.
    """

    store: TrackingStore
    run: str
    known: Mapping[str, set[int]] = field(default_factory=dict)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        new = {name: value for name, value in metrics.items() if step not in self.known.get(name, ())}
        self.store.metrics(self.run, new, step)

    def progress(self, done: int, total: int, text: str) -> None:
        """Progress is not tracked."""


@dataclass(slots=True)
class _Run:
    """One `kedro run` while it lasts."""

    store: TrackingStore
    name: str
    tags: dict[str, str]
    source: dict[str, str]
    params: dict[str, Any]
    catalog: DataCatalog
    parent: str | None = None
    opened: bool = False
    curves: dict[str, Curve] = field(default_factory=dict)


class MlflowHooks:
    """Parent run, child runs, parameters, versions and curves; see `MlflowConfig`."""

    def __init__(self) -> None:
        self._config = MlflowConfig(enabled=False)
        self._project = Path()
        self._run: _Run | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        self._config = MlflowConfig.model_validate(context.config_loader["mlflow"])
        self._project = context.project_path

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: DataCatalog) -> None:
        self._run = None
        if not self._config.enabled:
            return
        pipelines = ",".join(run_params.get("pipeline_names") or ["__default__"])
        version = str(run_params["run_id"])
        self._run = _Run(
            store=TrackingStore(self._config, self._project),
            name=f"{pipelines} {version}",
            tags={
                "kedro.pipelines": pipelines,
                "kedro.env": str(run_params.get("env") or ""),
                "kedro.run_id": version,
                "kedro.command": shlex.join(["kedro", *sys.argv[1:]]),
            },
            source=git_tags(self._project),
            params=_parameters(pipeline.inputs(), catalog),
            catalog=catalog,
        )

    @hook_impl
    def before_dataset_loaded(self) -> None:
        """A node begins by loading: only a run in which a node begins is worth a line in the tracker."""
        run = self._run
        if run is None or run.opened:
            return
        run.opened = True
        run.store.end_dead()
        run.parent = run.store.open_run(run.name, {**run.source, **run.tags})
        if run.parent is not None:
            run.store.params(run.parent, run.params)
            run.store.text(run.parent, json.dumps(run.params, indent=1, default=str), "config/parameters.json")

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        run = self._run
        if run is None or run.parent is None:
            return
        curve = self._curve(run, run.parent, node) if TRACKED_TAGS & node.tags else None
        if curve is not None:
            run.curves[node.name] = curve
            subscribe(curve)
        tracked = run.parent if curve is None else curve.run
        set_made(made_now().model_copy(update={"mlflow_run": tracked}))

    def _curve(self, run: _Run, parent: str, node: Node) -> Curve | None:
        """The node's own run: a new one, or the one of a node that was killed and goes on."""
        own = workspace()
        note = None if own is None else own.folder / _NOTE
        if note is not None and note.is_file():
            child = note.read_text(encoding="utf-8")
            if run.store.reopen_run(child, parent):
                run.store.watch(child)
                return Curve(run.store, child, run.store.known_steps(child))
        own_tags = {"kedro.node": node.name, "ledger.key": made_now().key, "kedro.run_id": run.tags["kedro.run_id"]}
        tags = {**run.source, **own_tags, **_versions(node.inputs, run.catalog, saved=False)}
        created = run.store.open_run(node.name, tags, parent)
        if created is None:
            return None
        run.store.params(created, _parameters(node.inputs, run.catalog))
        run.store.watch(created)
        if note is not None:
            with suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(created, encoding="utf-8")
        return Curve(run.store, created)

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        if self._run is not None and (curve := self._run.curves.get(node.name)) is not None:
            self._run.store.tags(curve.run, _versions(node.outputs, self._run.catalog, saved=True))
        self._close_child(node, "FINISHED")

    @hook_impl
    def on_node_error(self, error: Exception, node: Node) -> None:
        self._close_child(node, status_of(error))

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        run = self._run
        if run is None or run.parent is None:
            return
        run.store.tags(run.parent, _versions([dataset_name], run.catalog, saved=True))
        if isinstance(data, dict):
            run.store.metrics(run.parent, numbers(dataset_name, data), 0)
        path = _result(run.catalog, dataset_name)
        if path is not None:
            run.store.file(run.parent, path, "results")

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str, data: Any) -> None:
        run = self._run
        # An optional dataset of which nothing is stored loads as None.
        if run is not None and run.parent is not None and data is not None and not dataset_name.startswith(_PARAMETER):
            run.store.tags(run.parent, _versions([dataset_name], run.catalog, saved=False))

    @hook_impl
    def after_pipeline_run(self) -> None:
        self._close("FINISHED")

    @hook_impl
    def on_pipeline_error(self, error: Exception) -> None:
        self._close(status_of(error))

    def _close_child(self, node: Node, status: Status) -> None:
        curve = self._run.curves.pop(node.name, None) if self._run else None
        if curve is not None:
            unsubscribe(curve)
            curve.store.close_run(curve.run, status)

    def _close(self, status: Status) -> None:
        run, self._run = self._run, None
        if run is not None and run.parent is not None:
            run.store.close_run(run.parent, status)


def _parameters(names: Iterable[str], catalog: DataCatalog) -> dict[str, Any]:
    """The flattened parameters among some inputs."""
    found: dict[str, Any] = {}
    for name in sorted(names):
        if name.startswith(_PARAMETER):
            found.update(flatten(name.removeprefix(_PARAMETER), catalog.load(name)))
    return found


def _versions(names: Iterable[str], catalog: DataCatalog, *, saved: bool) -> dict[str, str]:
    """Tags with the versions of some datasets, those that are saved or those that are loaded."""
    tags = {}
    for name in names:
        dataset = catalog.get(name)
        if isinstance(dataset, AbstractVersionedDataset):
            version = dataset.resolve_save_version() if saved else dataset.resolve_load_version()
            if version is not None:
                tags[f"dataset.{name}"] = version
    return tags


def _result(catalog: DataCatalog, name: str) -> Path | None:
    """The file of a metric, figure or report that was just stored; None for any other dataset."""
    dataset = catalog.get(name)
    if not isinstance(dataset, AbstractVersionedDataset) or _RESULTS not in Path(dataset._filepath).parts:
        return None
    version = dataset.resolve_save_version()
    path = None if version is None else place_of(dataset, version)
    return path if path is not None and path.is_file() else None


def status_of(error: Exception) -> Status:
    """KILLED for an interruption by the user or the system, FAILED for anything else.

    Kedro wraps what happens while it loads and saves.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RunInterrupted):
            return "KILLED"
        cause = cause.__cause__
    return "FAILED"
