"""How a stage function becomes a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kedro.pipeline import node as kedro_node
from kedro.pipeline.node import Node

from worldwise.tracking.interruption import interruptible
from worldwise.tracking.reuse import handing_on


def node(
    function: Callable[..., Any],
    inputs: str | list[str] | dict[str, str] | None,
    outputs: str | list[str] | dict[str, str] | None,
    *,
    name: str,
    tags: str | list[str] | None = None,
) -> Node:
    """A named node that Ctrl-C and SIGTERM end in order, whatever its function catches meanwhile.

    It hands on what another run has made meanwhile where the ledger says so.
    """
    return kedro_node(interruptible(handing_on(function)), inputs, outputs, name=name, tags=tags)
