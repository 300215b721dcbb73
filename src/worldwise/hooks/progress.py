"""Says which node runs, how far it is, and how long it took."""

from __future__ import annotations

import logging
import time

from kedro.framework.hooks import hook_impl
from kedro.pipeline.node import Node

from worldwise.tracking.listeners import subscribe, unsubscribe
from worldwise.tracking.progress import NodeProgress, as_clock

_logger = logging.getLogger(__name__)

_RUNNER = "kedro.runner.sequential_runner"
_SAID_BETTER = ("Using synchronous mode", "Completed node:")


class ProgressHooks:
    """A line when a node begins and ends, and a progress line of nodes that tell how far they are."""

    def __init__(self) -> None:
        self._lines: dict[str, NodeProgress] = {}
        self._started: dict[str, float] = {}

    @hook_impl
    def before_pipeline_run(self) -> None:
        self._lines.clear()
        self._started.clear()
        logging.getLogger(_RUNNER).addFilter(is_news)

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        _logger.info("%s begins", node.name)
        self._started[node.name] = time.monotonic()
        line = self._lines[node.name] = NodeProgress(node.name)
        subscribe(line)

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        self._close(node)
        _logger.info("%s took %s", node.name, as_clock(time.monotonic() - self._started.pop(node.name)))

    @hook_impl
    def on_node_error(self, node: Node) -> None:
        self._close(node)

    def _close(self, node: Node) -> None:
        line = self._lines.pop(node.name)
        unsubscribe(line)
        line.close()


def is_news(record: logging.LogRecord) -> bool:
    """Whether a line of Kedro's runner says something that this hook does not say with the time it took."""
    return not record.getMessage().startswith(_SAID_BETTER)
