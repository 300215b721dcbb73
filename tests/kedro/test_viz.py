"""kedro-viz shows the pipelines in their layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.project import pipelines
from kedro.framework.session import KedroSession
from kedro_viz.data_access.managers import DataAccessManager
from kedro_viz.models.flowchart.nodes import DataNode

from worldwise.datasets.optional import OptionalJSONDataset


@pytest.fixture(scope="module")
def shown(project: Any) -> DataAccessManager:
    """What kedro-viz knows of the project."""
    with KedroSession.create(project, save_on_close=False, env="test") as session:
        assert isinstance(session, KedroSession)
        catalog = session.load_context().catalog
    manager = DataAccessManager()
    manager.add_catalog(catalog, dict(pipelines))
    manager.add_pipelines(dict(pipelines))
    return manager


@pytest.mark.parametrize("pipeline", ["__default__", "rwml_then_rl", "rl_only", "wm_sft_then_rl"])
def test_the_layers_have_an_order(shown: DataAccessManager, pipeline: str) -> None:
    layers = shown.get_sorted_layers_for_registered_pipeline(pipeline)
    assert layers
    assert layers == sorted(layers)


def test_every_node_is_shown(shown: DataAccessManager) -> None:
    names = {node.name for node in shown.get_nodes_for_registered_pipeline("rwml_then_rl")}
    assert {node.name for node in pipelines["rwml_then_rl"].nodes} <= names


def test_what_is_not_stored_yet_says_so(tmp_path: Path) -> None:
    absent = OptionalJSONDataset(filepath=(tmp_path / "absent.json").as_posix())
    assert json.loads(absent.preview()) == "nothing is stored yet"
    absent.save({"rows": [1]})
    assert json.loads(absent.preview()) == {"rows": [1]}


def test_tables_of_lists_have_no_preview(shown: DataAccessManager) -> None:
    found = {node.name: node for node in shown.get_nodes_for_registered_pipeline("rwml_then_rl")}
    scored, figure = found["scored_transitions"], found["success_figure"]
    assert isinstance(scored, DataNode)
    assert isinstance(figure, DataNode)
    assert not scored.is_preview_enabled()
    assert figure.is_preview_enabled()
