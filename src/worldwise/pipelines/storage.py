"""Whether what a run reads is stored, and whether what it writes will fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.pipeline import Pipeline

from worldwise.datasets.checkpoint import CheckpointDataset
from worldwise.datasets.episodes import EpisodesDataset
from worldwise.datasets.optional import OptionalEpisodesDataset, OptionalJSONDataset
from worldwise.generation.models import EMBEDDED, ModelConfig, resolve_model
from worldwise.ledger.publish import PublishError, folder_size, require_free_space
from worldwise.pipelines.errors import InputError

MAY_BE_ABSENT = (OptionalJSONDataset, OptionalEpisodesDataset)

MADE_BY = {
    "tasks": "data_collection",
    "pretrained_model": "data_collection",
    "base_model": "data_collection",
    "collected_episodes": "data_collection",
    "transitions": "data_collection",
    "rwml_transitions": "difficulty_subsampling",
    "difficulty_threshold": "difficulty_subsampling",
    "world_model": "rwml",
    "wm_sft_model": "wm_sft",
    "policy_model": "policy_rl",
    "base_evaluation": "evaluation",
    "held_out_transitions": "evaluation",
    "yardsticks": "evaluation",
    "rl_only_model": "rl_only",
    "wm_sft_policy_model": "wm_sft_then_rl",
}
"""Dataset -> the pipeline that makes it, for messages."""

BYTES_PER_EPISODE = 40_000
"""A stored episode of some 20 turns, compressed, rounded up."""


def check_storage(
    pipeline: Pipeline, catalog: DataCatalog, run_params: Mapping[str, Any], blocks: Mapping[str, Any]
) -> None:
    """Checks the stored inputs of a run, the versions it names, and the room on the disk.

    Args:
        pipeline: what will run.
        catalog: where it reads and writes.
        run_params: as Kedro hands them to `before_pipeline_run`.
        blocks: validated parameters.

    Raises:
        InputError: all findings.
    """
    findings = list(_versions(catalog, run_params))
    if not run_params.get("only_missing_outputs"):
        findings += _inputs(pipeline, catalog)
    findings += _room(pipeline, catalog, blocks)
    if findings:
        raise InputError(*findings)


def bytes_needed(pipeline: Pipeline, catalog: DataCatalog, blocks: Mapping[str, Any]) -> int:
    """A rough size of everything that a run will store."""
    outputs = [catalog.get(name) for name in sorted(pipeline.all_outputs())]
    checkpoints = sum(isinstance(dataset, CheckpointDataset) for dataset in outputs)
    played = sum(isinstance(dataset, EpisodesDataset) for dataset in outputs)
    collect, policy = blocks["collect"], blocks["policy"]
    episodes = max(collect.tasks * collect.episodes_per_task, policy.tasks_per_iteration * policy.group_size)
    stored: int = checkpoints * _model_size(blocks["model"]) + played * episodes * BYTES_PER_EPISODE
    return stored


def _versions(catalog: DataCatalog, run_params: Mapping[str, Any]) -> Iterator[str]:
    for name, version in (run_params.get("load_versions") or {}).items():
        dataset = catalog.get(name)
        if dataset is None:
            yield f"--load-versions names the dataset {name!r}, which no catalog file has"
        elif isinstance(dataset, AbstractVersionedDataset) and not dataset.exists():
            yield f"--load-versions asks for {name}:{version}, which is not stored; there are: {_known(dataset)}"


def _known(dataset: AbstractVersionedDataset[Any, Any]) -> str:
    return ", ".join(dataset.list_versions(full_path=False)) or "none"


def _inputs(pipeline: Pipeline, catalog: DataCatalog) -> Iterator[str]:
    for name in sorted(pipeline.inputs()):
        if name.startswith("params:") or name == "parameters":
            continue
        dataset = catalog.get(name)
        if dataset is not None and not isinstance(dataset, MAY_BE_ABSENT) and not dataset.exists():
            maker = MADE_BY.get(name)
            first = f"run `kedro run --pipelines={maker}` first" if maker else "run the pipeline that makes it first"
            yield f"the dataset {name} has no stored version, and this run does not make it: {first}"


def _room(pipeline: Pipeline, catalog: DataCatalog, blocks: Mapping[str, Any]) -> Iterator[str]:
    folders = [
        Path(dataset._filepath)
        for name in sorted(pipeline.all_outputs())
        if isinstance(dataset := catalog.get(name), AbstractVersionedDataset)
    ]
    if folders:
        try:
            require_free_space(folders[0], bytes_needed(pipeline, catalog, blocks), "this run")
        except PublishError as error:
            yield str(error)


def _model_size(model: ModelConfig) -> int:
    """Bytes of the model's folder where it is at hand; 0 where it would have to be fetched."""
    named = Path(model.name).expanduser()
    if model.name == EMBEDDED or named.is_dir():
        return folder_size(resolve_model(model))
    return 0
