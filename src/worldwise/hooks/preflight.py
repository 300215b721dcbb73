"""Refuses a run whose input is wrong, before anything expensive begins."""

from __future__ import annotations

from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog
from kedro.pipeline import Pipeline

from worldwise.config_loader import data_root_as_given


class PreflightHooks:
    """Checks parameters as soon as they are read, then the world, the model, what is stored, and the disk.

    The checks import the stages, so they are imported only where a project is loaded.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, Any] = {}
        self._data_root = ""

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        from worldwise.pipelines.errors import InputError
        from worldwise.pipelines.parameters import validated

        parameters = context.config_loader["parameters"]
        self._blocks = validated(parameters)
        given = context.config_loader.runtime_params.get("data_root")
        if given is None and "data_root" in parameters:
            raise InputError(
                f"parameter data_root is {parameters['data_root']!r} in a parameters file, which the catalog does not "
                "read: move it to globals.yml beside that file, or give it with --params=data_root=/another/folder"
            )
        self._data_root = data_root_as_given(context.config_loader)

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: DataCatalog) -> None:
        from worldwise.pipelines.preflight import preflight
        from worldwise.pipelines.storage import check_storage

        preflight(self._blocks, pipeline.datasets())
        check_storage(pipeline, catalog, run_params, self._blocks, self._data_root)
