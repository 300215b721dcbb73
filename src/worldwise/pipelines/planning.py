"""What the ledger needs to know of this project to plan a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.project import pipelines
from kedro.io import DataCatalog
from kedro.pipeline.node import Node

import worldwise
from worldwise.config_loader import data_root
from worldwise.datasets.transitions import TransitionsDataset
from worldwise.episodes.store import read_transitions, write_transitions
from worldwise.ledger.code import CodeSet
from worldwise.ledger.digests import DigestCache
from worldwise.ledger.plan import Codec, Surroundings
from worldwise.ledger.workspace import WORK_FOLDER
from worldwise.pipelines.parameters import validated
from worldwise.pipelines.raw import raw_digests

CHANGES_NO_RESULT = (
    "worldwise.cli",
    "worldwise.datasets",
    "worldwise.deferring",
    "worldwise.files",
    "worldwise.hooks",
    "worldwise.ledger",
    "worldwise.stages.watching",
    "worldwise.tracking",
    # What they make of a value, the value says.
    "worldwise.pipelines.parameters",
    "worldwise.pipelines.preflight",
)
"""Modules whose changes make nothing stale."""

CODECS: dict[type, Codec] = {TransitionsDataset: Codec(read_transitions, write_transitions)}
"""Datasets that turn files of this project's own into values. What they do so with decides what a node gets, and it is
in no node's code. Folders travel as paths: which code reads and writes them, the nodes say themselves.
"""


def surroundings(context: KedroContext, catalog: DataCatalog) -> Surroundings:
    """What a plan is made with.

    Raises:
        InputError: parameters that are not valid.
    """
    loader = context.config_loader
    values = validated(loader["parameters"])
    work = data_root(loader, context.project_path) / WORK_FOLDER
    cache = DigestCache(work / "digests.json")

    def raw(node: Node, blocks: Mapping[str, Any]) -> Mapping[str, str]:
        found = raw_digests(node.name, values, blocks, cache)
        cache.save()
        return found

    code = CodeSet("worldwise", Path(worldwise.__file__).parent, CHANGES_NO_RESULT, work / "code.json")
    nodes = {node.name: node for pipeline in pipelines.values() for node in pipeline.nodes}
    return Surroundings(catalog, values, code, raw, CODECS, cache, list(nodes.values()))
