"""What a run reads, what it need not make again, and what its results say of their making."""

from __future__ import annotations

import logging
from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.config_loader import data_root_as_given
from worldwise.ledger.run import LedgerRun
from worldwise.tracking.source import git_state, package_versions

_logger = logging.getLogger(__name__)


class VersionHooks:
    """Pins the versions of all datasets of a run, checks what is loaded, and signs what is stored."""

    def __init__(self) -> None:
        self._context: KedroContext | None = None
        self._run: LedgerRun | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        self._context = context
        self._run = None

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: DataCatalog) -> None:
        from worldwise.pipelines.planning import surroundings
        from worldwise.pipelines.storage import check_planned

        assert self._context is not None
        state: dict[str, Any] = {**git_state(self._context.project_path), "packages": package_versions()}
        around = surroundings(self._context, catalog)
        self._run = LedgerRun(around, str(run_params["run_id"]), state)
        stale = [
            plan for plan in self._run.begin(pipeline, bool(run_params.get("only_missing_outputs"))) if plan.reasons
        ]
        for note in self._run.notes:
            _logger.warning("%s", note)
        for plan in stale:
            _logger.info("%s runs: %s", plan.node, "; ".join(plan.reasons))
        if stale:
            planned = pipeline.only_nodes(*(plan.node for plan in stale))
            check_planned(planned, catalog, around.values, data_root_as_given(self._context.config_loader))

    @hook_impl
    def before_dataset_loaded(self, dataset_name: str) -> None:
        if self._run is not None:
            self._run.check(dataset_name)

    # First of all: who else is at this node, and where it stands, goes by what is signed here.
    @hook_impl(tryfirst=True)
    def before_node_run(self, node: Node) -> None:
        if self._run is not None:
            self._run.sign(node)

    @hook_impl
    def after_pipeline_run(self) -> None:
        self._end()

    @hook_impl
    def on_pipeline_error(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._run is not None:
            self._run.end()
