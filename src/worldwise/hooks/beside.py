"""Who makes a node: this run, another one that is at it already, or one that was killed in its middle.

All three hang on the claim of the node's key: only who holds it works, and only he goes on from the node's workspace.
"""

from __future__ import annotations

import logging
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog
from kedro.io.core import Version
from kedro.pipeline.node import Node

from worldwise.config_loader import data_root
from worldwise.ledger.manifest import damage
from worldwise.ledger.plan import find
from worldwise.ledger.provenance import made_now, set_made
from worldwise.ledger.runs import LiveRuns, RunEntry
from worldwise.ledger.stored import Versioned, versioned
from worldwise.ledger.workspace import KEY_SHOWN, WORK_FOLDER, WORKSPACES, Workspace, set_workspace, workspace
from worldwise.tracking.progress import as_clock
from worldwise.tracking.reuse import take_over

_logger = logging.getLogger(__name__)


class BesideHooks:
    """Claims every node for this run, waits for what another one makes, and opens the workspace of what is claimed.

    With `--only-missing-outputs` a node that another run is making with the same code, parameters and inputs is
    waited for, and its results are taken over. Any other run was asked to make everything itself: it says so and does.
    """

    def __init__(self) -> None:
        self._folder = Path()
        self._runs = LiveRuns(self._folder)
        self._entry: RunEntry | None = None
        self._reuses = False
        self._every_s = 60.0
        self._key = ""
        self._unsaved: set[str] = set()

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        from worldwise.pipelines.parameters import validated

        self._folder = data_root(context.config_loader, context.project_path) / WORK_FOLDER
        self._every_s = validated(context.config_loader["parameters"])["ledger"].save_every_s

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any]) -> None:
        # Of a run of this process that was refused before its first node.
        self._runs.leave()
        self._runs = LiveRuns(self._folder)
        self._reuses = bool(run_params.get("only_missing_outputs"))
        command = shlex.join(["kedro", *sys.argv[1:]])
        self._entry = RunEntry.of_this_process(str(run_params["run_id"]), command)
        try:
            self._runs.enter(self._entry)
        except OSError as error:
            # A run that finds everything cached may read from a disk that takes nothing.
            _logger.warning("%s cannot be written (%s): runs beside this one do not see it", self._folder, error)
            self._entry = None

    @hook_impl
    def before_node_run(self, node: Node, catalog: DataCatalog) -> None:
        self._key = made_now().key
        self._unsaved = set(node.outputs)
        set_workspace(None)
        if self._entry is None:
            return
        try:
            self._claim(node, catalog, self._entry)
        except OSError as error:
            _logger.warning("%s: %s cannot be written (%s): other runs do not see it", node.name, self._folder, error)

    def _claim(self, node: Node, catalog: DataCatalog, entry: RunEntry) -> None:
        """Waits for who is at it, takes over what is there, or opens the node's workspace."""
        if self._reuses:
            self._runs.wait(self._key, entry, lambda other, waited: _say(node, other, waited))
            # What is there with this key was made since the run was planned, by another run or from equal inputs.
            if not _reuse(node, catalog, self._key):
                self._open(node)
        elif (other := self._runs.claim(self._key, entry)) is not None:
            _logger.warning(
                "%s: %s is making the same with the same code, parameters and inputs; this run makes it once more. "
                "With --only-missing-outputs it waits for the other and takes its results over",
                node.name,
                other,
            )
        else:
            self._open(node)

    def _open(self, node: Node) -> None:
        """The node's workspace; only who has the claim gets it."""
        own = Workspace(self._folder / WORKSPACES / f"{node.name}-{self._key[:KEY_SHOWN]}", self._every_s)
        state = own.latest()
        if state is not None:
            moment = datetime.fromtimestamp(state.stat().st_mtime, UTC).isoformat(timespec="seconds")
            _logger.info("%s goes on from the state that was saved at %s", node.name, moment)
        set_workspace(own)

    @hook_impl
    def after_node_run(self) -> None:
        take_over(None)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str) -> None:
        self._unsaved.discard(dataset_name)
        if not self._unsaved:
            own = workspace()
            if own is not None:
                own.remove()
            set_workspace(None)
            self._runs.release(self._key)

    @hook_impl
    def after_pipeline_run(self) -> None:
        self._runs.leave()

    @hook_impl
    def on_pipeline_error(self) -> None:
        take_over(None)
        set_workspace(None)
        self._runs.leave()


def _say(node: Node, other: RunEntry, waited: float) -> None:
    _logger.info("%s waits for %s, which is making the same (%s so far)", node.name, other, as_clock(waited))


def _reuse(node: Node, catalog: DataCatalog, key: str) -> bool:
    """Lets the node hand on what a run has made with this key; False where there is nothing whole of that kind."""
    outputs = {name: dataset for name in node.outputs if (dataset := versioned(catalog, name)) is not None}
    found = find(key, outputs)
    if len(found) != len(node.outputs) or any(damage(own.path, own.manifest.files) for own in found.values()):
        return False
    version = next(iter(found.values())).version
    _logger.info("%s takes the results of run %s over, made with the same inputs", node.name, version)
    set_made(made_now().model_copy(update={"reused": version}))
    take_over([_loaded(outputs[name], version) for name in node.outputs])
    return True


def _loaded(dataset: Versioned, version: str) -> Any:
    return dataset._copy(_version=Version(version, None)).load()
