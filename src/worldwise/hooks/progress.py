"""Shows how far each node is."""

from __future__ import annotations

from kedro.framework.hooks import hook_impl
from kedro.pipeline.node import Node

from worldwise.tracking.listeners import subscribe, unsubscribe
from worldwise.tracking.progress import NodeProgress


class ProgressHooks:
    """A progress line around every node that tells how far it is."""

    def __init__(self) -> None:
        self._lines: dict[str, NodeProgress] = {}

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        line = self._lines[node.name] = NodeProgress(node.name)
        subscribe(line)

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        self._close(node)

    @hook_impl
    def on_node_error(self, node: Node) -> None:
        self._close(node)

    def _close(self, node: Node) -> None:
        line = self._lines.pop(node.name)
        unsubscribe(line)
        line.close()
