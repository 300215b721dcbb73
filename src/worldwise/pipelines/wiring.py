"""How a stage function becomes a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kedro.pipeline import node as kedro_node
from kedro.pipeline.node import Node

from worldwise.tracking.interruption import interruptible


def node(
    function: Callable[..., Any],
    inputs: str | list[str] | dict[str, str] | None,
    outputs: str | list[str] | dict[str, str] | None,
    *,
    name: str,
    tags: str | list[str] | None = None,
) -> Node:
    """A named node that Ctrl-C and SIGTERM end in order, whatever its function catches meanwhile."""
    return kedro_node(interruptible(function), inputs, outputs, name=name, tags=tags)
