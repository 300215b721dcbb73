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
                [
                    "base_model",
                    "yardsticks",
                    "transition_counts",
                    "difficulty_metrics",
                    "params:report",
                    "params:world",
                    "params:agent",
                    "params:model",
                    *(f"{model}_evaluation" for model in nodes.MODELS),
                    *(f"{model}_evaluation_episodes" for model in nodes.MODELS),
                    *(f"{stage}_curves" for stage in nodes.STAGES),
                ],
                ["report_summary", "report_html", *(f"{name}_figure" for name in nodes.FIGURES)],
                name="write_report",
            )
        ]
    )
