"""What holds for every pipeline, dataset and parameter of the project."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from kedro.config import OmegaConfigLoader
from kedro.framework.session import KedroSession
from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.datasets.atomic import AtomicFile
from worldwise.datasets.folder import FolderDataset
from worldwise.pipeline_registry import register_pipelines
from worldwise.pipelines.parameters import BLOCKS, NOT_BLOCKS, validated
from worldwise.pipelines.storage import MADE_BY

LAYERS = {
    "01_raw",
    "02_intermediate",
    "03_primary",
    "04_feature",
    "05_model_input",
    "06_models",
    "07_model_output",
    "08_reporting",
}
PIPELINES = register_pipelines()
NODES: dict[str, Node] = {node.name: node for pipeline in PIPELINES.values() for node in pipeline.nodes}
DATASETS = sorted({name for pipeline in PIPELINES.values() for name in pipeline.datasets() if ":" not in name})
MODELS_THAT_MAKE_DATA = {"pretrained_model", "base_model", "auxiliary_model"}
"""Their layer for kedro-viz would make a circle of the layers."""

PROMISED = {
    "__default__",
    "base_model",
    "data_collection",
    "difficulty_subsampling",
    "evaluation",
    "policy_rl",
    "reporting",
    "rl_only",
    "rwml",
    "rwml_then_rl",
    "wm_sft_then_rl",
}

Loader = Callable[..., OmegaConfigLoader]


@pytest.fixture(scope="module")
def catalog(project: Path, tmp_path_factory: pytest.TempPathFactory) -> DataCatalog:
    root = tmp_path_factory.mktemp("data").as_posix()
    with KedroSession.create(project, save_on_close=False, env="test", runtime_params={"data_root": root}) as session:
        assert isinstance(session, KedroSession)
        return session.load_context().catalog


def test_the_promised_pipelines_are_there() -> None:
    assert set(PIPELINES) >= PROMISED
    assert PIPELINES["__default__"] == PIPELINES["rwml_then_rl"]


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_is_stored_versioned_and_in_a_layer(catalog: DataCatalog, name: str) -> None:
    dataset = catalog.get(name)
    assert isinstance(dataset, AbstractVersionedDataset), f"{name} is not stored"
    assert dataset._version is not None, f"{name} is not versioned"
    assert isinstance(dataset, AtomicFile | FolderDataset), f"{name} is not stored in one step"
    folder = dataset._filepath.parts[-3]
    layer = folder if name in MODELS_THAT_MAKE_DATA else dataset.metadata["kedro-viz"]["layer"]
    assert layer in LAYERS
    assert f"/{layer}/household/" in dataset._filepath.as_posix()


def test_every_catalog_entry_is_used(loader: Loader) -> None:
    entries = {name for name in loader("base")["catalog"] if not name.startswith("_")}
    catalog = DataCatalog.from_config({name: {"type": "MemoryDataset"} for name in entries})
    match = catalog.config_resolver.match_dataset_pattern
    used = {name if name in entries else match(name) for name in DATASETS}
    assert entries - used == set()


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_every_node_is_named_and_every_parameter_typed(node: Node) -> None:
    assert "__" not in node.name
    assert node.name.islower()
    hints = get_type_hints(node.func)
    arguments = [*inspect.signature(node.func).parameters]
    for index, dataset in enumerate(node.inputs):
        if dataset.startswith("params:"):
            block = dataset.removeprefix("params:")
            expected = int if block == "seed" else BLOCKS[block]
            assert hints[arguments[index]] is expected, f"{node.name} reads {dataset} as {arguments[index]}"


def test_training_nodes_are_tagged() -> None:
    trained = {name for name in NODES if name.startswith(("finetune", "midtrain", "train", "tune", "build"))}
    assert {name for name, node in NODES.items() if "train" in node.tags} == trained


def test_every_block_is_used() -> None:
    used = {
        name.removeprefix("params:") for node in NODES.values() for name in node.inputs if name.startswith("params:")
    }
    assert set(BLOCKS) == {*used, "ledger"}, "hooks read that one"


def test_blocks_in_messages_are_made_where_they_say() -> None:
    for dataset, pipeline in MADE_BY.items():
        assert dataset in PIPELINES[pipeline].all_outputs()


@pytest.mark.parametrize(
    "env", sorted(path.name for path in (Path(__file__).resolve().parents[2] / "conf").iterdir() if path.is_dir())
)
def test_every_environment_is_valid(loader: Loader, env: str) -> None:
    config = loader(env)
    assert set(config["parameters"]) - NOT_BLOCKS == set(BLOCKS)
    assert set(validated(config["parameters"])) == set(BLOCKS)
    assert config["catalog"]


def test_a_world_may_be_named_alone(loader: Loader) -> None:
    config = loader("base", world="household")
    assert config["parameters"]["world"]["household"]["max_turns"] == 50
    assert "/household/" in config["catalog"]["transitions"]["filepath"]
    assert "/webshop/" in loader("base", world="webshop")["catalog"]["transitions"]["filepath"]


def test_results_on_official_games_lie_apart(loader: Loader) -> None:
    catalog = loader("official")["catalog"]
    assert "/household_official/" in catalog["yardsticks"]["filepath"]
    assert "/household_official/" in catalog["evaluation_tasks"]["filepath"]
    assert "/household/" in catalog["{stage}_model"]["filepath"]


def test_the_data_root_moves_everything(loader: Loader) -> None:
    catalog = loader("base", data_root="/elsewhere")["catalog"]
    stored = [entry["filepath"] for name, entry in catalog.items() if not name.startswith("_")]
    assert all(path.startswith("/elsewhere/") for path in stored)


def test_an_environment_changes_single_values(loader: Loader) -> None:
    base, gpu = loader("base")["parameters"], loader("gpu")["parameters"]
    assert gpu["policy"]["iterations"] == 150
    assert gpu["policy"]["group_size"] == base["policy"]["group_size"]


@pytest.mark.parametrize("name", ["rwml_then_rl", "rl_only", "wm_sft_then_rl"])
def test_whole_pipelines_need_nothing_but_parameters(name: str) -> None:
    pipeline: Pipeline = PIPELINES[name]
    needed: Any = {dataset for dataset in pipeline.inputs() if not dataset.startswith("params:")}
    optional = {dataset for dataset in needed if dataset.endswith(("_evaluation", "_episodes", "_curves"))}
    assert needed - optional <= {"transition_counts", "difficulty_metrics"}
