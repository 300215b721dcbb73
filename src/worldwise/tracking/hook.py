"""Every `kedro run` as a run in MLflow, every training node as a child of it.

mlflow is imported when the first node starts, so that other commands do not pay for it. Nothing that goes wrong with it
may reach the run: see `TrackingStore`, which does all of its calls in the background.
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

from kedro.config import AbstractConfigLoader, MissingConfigException
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
from worldwise.tracking.runs import TrackedRun
from worldwise.tracking.source import git_tags
from worldwise.tracking.store import Status, TrackingStore

TRACKED_TAGS = {"train", "collect"}
"""Nodes with one of these tags get a child run with their curves."""

_PARAMETER = "params:"

_NOTE = "mlflow_run"
"""File in a node's workspace that names its run."""

_RESULTS = "08_reporting"
"""Layer of metrics, figures and reports: what of it is one small file is copied to the tracker."""


@dataclass(slots=True)
class Curve:
    """A listener that writes a node's numbers into its run.

    Attributes:
        store, run: where to.
        note: file for the run's id, so that the node finds its run again if it is killed; None once it is written.
    """

    store: TrackingStore
    run: TrackedRun
    note: Path | None = None

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.store.metrics(self.run, metrics, step)
        self.keep()

    def keep(self) -> None:
        """Writes the note as soon as there is an id to write."""
        note, name = self.note, self.run.id
        if note is not None and name is not None:
            self.note = None
            with suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(name, encoding="utf-8")

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
    parent: TrackedRun | None = None
    curves: dict[str, Curve] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class MlflowHooks:
    """Parent run, child runs, parameters, versions and curves; see `MlflowConfig`."""

    def __init__(self) -> None:
        self._config = MlflowConfig(enabled=False)
        self._project = Path()
        self._loader: AbstractConfigLoader | None = None
        self._run: _Run | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        self._config = MlflowConfig.model_validate(context.config_loader["mlflow"])
        self._project = context.project_path
        self._loader = context.config_loader

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
            settings=_settings(self._loader),
        )

    @hook_impl
    def before_dataset_loaded(self) -> None:
        """A node begins by loading: only a run in which a node begins is worth a line in the tracker."""
        run = self._run
        if run is None or run.parent is not None:
            return
        run.store.end_dead()
        run.parent = run.store.open_run(run.name, {**run.source, **run.tags})
        run.store.params(run.parent, run.params)
        for name, content in {"parameters": run.params, **run.settings}.items():
            run.store.text(run.parent, json.dumps(content, indent=1, default=str), f"config/{name}.json")

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        run = self._run
        if run is None or run.parent is None:
            return
        tracked = run.parent
        if TRACKED_TAGS & node.tags:
            curve = run.curves[node.name] = self._curve(run, run.parent, node)
            subscribe(curve)
            tracked = curve.run
        set_made(made_now().model_copy(update={"mlflow_run": run.store.id_of(tracked) or ""}))
        if node.name in run.curves:
            run.curves[node.name].keep()

    def _curve(self, run: _Run, parent: TrackedRun, node: Node) -> Curve:
        """The node's own run: a new one, or the one of a node that was killed and goes on."""
        own = workspace()
        note = None if own is None else own.folder / _NOTE
        own_tags = {"kedro.node": node.name, "ledger.key": made_now().key, "kedro.run_id": run.tags["kedro.run_id"]}
        tags = {**run.source, **own_tags, **_versions(node.inputs, run.catalog, saved=False)}
        child = run.store.open_run(node.name, tags, parent, _noted(note))
        run.store.params(child, _parameters(node.inputs, run.catalog))
        run.store.watch(child)
        return Curve(run.store, child, note)

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
        if run is None or run.parent is None:
            return
        # Those of a node that was stopped before it began.
        for curve in run.curves.values():
            unsubscribe(curve)
            run.store.close_run(curve.run, status)
        run.store.close_run(run.parent, status)
        run.store.finish()


def _settings(loader: AbstractConfigLoader | None) -> dict[str, Any]:
    """The catalog and the globals that are in force."""
    found: dict[str, Any] = {}
    for kind in ("catalog", "globals"):
        with suppress(KeyError, MissingConfigException):
            found[kind] = {} if loader is None else loader[kind]
    given = getattr(loader, "runtime_params", None) or {}
    if "globals" in found:
        found["globals"] = {name: given.get(name, value) for name, value in found["globals"].items()}
    return found


def _noted(note: Path | None) -> str | None:
    """The id in a note; None where there is none that can be read."""
    try:
        return None if note is None else note.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


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
