"""Which version of every dataset a run reads, settled when it begins."""

from __future__ import annotations

from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.io.core import Version
from kedro.pipeline import Pipeline


def pin_versions(pipeline: Pipeline, catalog: DataCatalog, only_missing: bool = False) -> None:
    """A run reads what it wrote itself, and of everything else the version that was the newest when it began.

    Kedro looks for the newest version when a dataset is loaded, so a run beside this one on the same folders would
    slip its results in between two nodes. What is not stored yet and not made by this run stays absent for it.

    Args:
        pipeline: what will run.
        catalog: its datasets are pinned in place; a version that `--load-versions` names stays.
        only_missing: nodes whose outputs are all there are skipped. A node whose newest outputs are of different
            runs was stopped between them, so its outputs count as missing.
    """
    stored = {
        name: dataset
        for name in pipeline.datasets()
        if isinstance(dataset := catalog.get(name), AbstractVersionedDataset) and dataset._version
    }
    newest = {name: next(iter(dataset.list_versions(full_path=False)), None) for name, dataset in stored.items()}
    made = set()
    for node in pipeline.nodes:
        found = {newest[name] for name in node.outputs if name in newest}
        if not only_missing or None in found or len(found) > 1:
            made.update(node.outputs)
    for name, dataset in stored.items():
        if dataset._version is not None and not dataset._version.load:
            own = dataset.resolve_save_version()
            dataset._version = Version(own if name in made else newest[name] or own, own)
