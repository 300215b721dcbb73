"""What the ledger needs to know of this project to plan a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedro.framework.context import KedroContext
from kedro.io import DataCatalog
from kedro.pipeline.node import Node

import worldwise
from worldwise.config_loader import data_root
from worldwise.ledger.code import CodeSet
from worldwise.ledger.digests import DigestCache
from worldwise.ledger.plan import Surroundings
from worldwise.ledger.workspace import WORK_FOLDER
from worldwise.pipelines.parameters import validated
from worldwise.pipelines.raw import raw_digests

CHANGES_NO_RESULT = (
    "worldwise.cli",
    "worldwise.datasets",
    "worldwise.files",
    "worldwise.hooks",
    "worldwise.ledger",
    "worldwise.tracking",
    # What they make of a value, the value says.
    "worldwise.pipelines.parameters",
    "worldwise.pipelines.preflight",
)
"""Modules whose changes make nothing stale."""


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
    return Surroundings(catalog, values, code, raw)
