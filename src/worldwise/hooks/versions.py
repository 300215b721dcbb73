"""Settles what a run reads when it begins, so that runs side by side do not read each other's results."""

from __future__ import annotations

from typing import Any

from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline

from worldwise.ledger.versions import pin_versions


class VersionHooks:
    """Pins the versions of all datasets of a run."""

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: DataCatalog) -> None:
        pin_versions(pipeline, catalog, bool(run_params.get("only_missing_outputs")))
