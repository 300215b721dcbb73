"""Applies the parameter block `compute` to the process."""

from __future__ import annotations

from kedro.framework.hooks import hook_impl
from kedro.io import DataCatalog


class ComputeHooks:
    """Sets torch's threads before the first node runs."""

    @hook_impl
    def before_pipeline_run(self, catalog: DataCatalog) -> None:
        threads = catalog.load("params:compute").get("threads")
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
