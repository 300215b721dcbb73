"""Which version of every dataset a run reads, settled when it begins.

Kedro looks for the newest version when a dataset is loaded, so a run beside this one on the same folders would slip its
results in between two nodes. A run reads what it wrote itself, and of everything else the version that was the newest
(or that served, see `ledger.plan`) when it began. What is not stored yet and not made by this run stays absent for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kedro.io import DataCatalog
from kedro.pipeline import Pipeline

from worldwise.ledger.manifest import InputEntry
from worldwise.ledger.plan import NodePlan
from worldwise.ledger.stored import Versioned, newest, pin, pinned_version, versioned


def pin_newest(pipeline: Pipeline, catalog: DataCatalog) -> None:
    """For a run of all nodes: what it makes is its own, of everything else the newest version counts.

    A version that `--load-versions` names stays.
    """
    _pin(pipeline, catalog, {name: None for node in pipeline.nodes for name in node.outputs}, {})


def pin_cached(
    pipeline: Pipeline, catalog: DataCatalog, plans: Sequence[NodePlan], chosen: Mapping[str, InputEntry]
) -> None:
    """For `--only-missing-outputs`: a cached node's outputs are those that serve, so Kedro skips it.

    The others' outputs are pinned to the version that this run will write, which is not there yet, so Kedro runs them.
    Inputs are those that the plan has chosen, the newest where it had no need to choose.
    """
    by_node = {plan.node: plan for plan in plans}
    made: dict[str, str | None] = {}
    for node in pipeline.nodes:
        cached = by_node[node.name].cached
        made |= {name: cached[name].version if name in cached else None for name in node.outputs}
    _pin(pipeline, catalog, made, chosen)


def _pin(
    pipeline: Pipeline, catalog: DataCatalog, made: Mapping[str, str | None], chosen: Mapping[str, InputEntry]
) -> None:
    stored: dict[str, Versioned] = {}
    for name in pipeline.datasets():
        dataset = versioned(catalog, name)
        if dataset is not None and pinned_version(dataset) is None:
            stored[name] = dataset
    for name, dataset in stored.items():
        own = dataset.resolve_save_version()
        assert own is not None
        if name in made:
            pin(dataset, made[name] or own)
        elif name in chosen:
            pin(dataset, chosen[name].version or own)
        else:
            found = newest(dataset)
            pin(dataset, own if found is None else found.version)
