"""Wiring of the reporting."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from worldwise.pipelines.reporting import nodes
from worldwise.pipelines.wiring import node


def create_pipeline() -> Pipeline:
    """All results that are stored -> one report. Results of pipelines that never ran are left out."""
    return Pipeline(
        [
            node(
                nodes.write_report,
                {
                    "base_model": "base_model",
                    "yardsticks": "yardsticks",
                    **{name: f"params:{name}" for name in ("report", "world", "agent", "model")},
                    **{name: name for name in nodes.MAY_BE_STORED},
                },
                ["report_summary", "report_html", *(f"{name}_figure" for name in nodes.FIGURES)],
                name="write_report",
            )
        ]
    )
