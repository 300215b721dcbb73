"""Whether what a run writes can be written, and will fit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from worldwise.datasets.checkpoint import CheckpointDataset
from worldwise.datasets.episodes import EpisodesDataset
from worldwise.files import nearest, refusal
from worldwise.generation.models import ModelConfig, folder_at_hand, weight_count
from worldwise.ledger.publish import PublishError, folder_size, require_free_space
from worldwise.ledger.workspace import STATES_KEPT
from worldwise.pipelines.learner_checks import learners
from worldwise.training.config import LearnerConfig

BYTES_PER_EPISODE = 40_000
"""A stored episode of some 20 turns, compressed, rounded up."""

STATE_MODELS = 4
"""What a state of a training node holds, in models: the weights, the best of them and the two moments of AdamW."""

OTHER_DATA_ROOT = "point data_root to another folder (--params=data_root=/another/folder)"


def check_room(pipeline: Pipeline, catalog: DataCatalog, blocks: Mapping[str, Any], data_root: str) -> Iterator[str]:
    """What is wrong with the folders that a run writes to, and with the room in them.

    Args:
        pipeline: what will run.
        catalog: where it writes.
        blocks: validated parameters.
        data_root: the parameter as it was given.
    """
    outputs = [_folder(catalog, name) for name in sorted(pipeline.all_outputs())]
    folders = [folder for folder in outputs if folder is not None]
    if not folders:
        return
    problems = [*_places(data_root, folders), *_scratch()]
    yield from problems
    if problems:
        return
    try:
        stored = bytes_needed(pipeline.all_outputs(), catalog, blocks) + state_bytes(pipeline.nodes, blocks)
        require_free_space(
            folders[0],
            stored,
            f"parameter data_root is {data_root!r}: this run",
            f"free some, delete old versions below data_root, or {OTHER_DATA_ROOT}",
        )
        scratch = Path(tempfile.gettempdir())
        if scratch.stat().st_dev != nearest(folders[0]).stat().st_dev:
            largest = max(bytes_needed(node.outputs, catalog, blocks) for node in pipeline.nodes)
            require_free_space(
                scratch,
                largest,
                f"TMPDIR is {str(scratch)!r}, where results are prepared: this run",
                "free some, or set TMPDIR to a folder with more room",
            )
    except PublishError as error:
        yield str(error)


def bytes_needed(outputs: Iterable[str], catalog: DataCatalog, blocks: Mapping[str, Any]) -> int:
    """A rough size of datasets: models and episodes, beside which the rest is small."""
    datasets = [catalog.get(name) for name in outputs]
    models = sum(isinstance(dataset, CheckpointDataset) for dataset in datasets)
    played = sum(isinstance(dataset, EpisodesDataset) for dataset in datasets)
    return models * model_bytes(blocks["model"]) + played * _most_episodes(blocks) * BYTES_PER_EPISODE


def state_bytes(nodes: Iterable[Node], blocks: Mapping[str, Any]) -> int:
    """A rough size of what training nodes keep of where they stand, and of the state that is being written beside it.

    It goes when a node is done, so the largest one counts.
    """
    models = [0]
    for node in nodes:
        if "train" in node.tags:
            taken = {name: block for name, block in blocks.items() if f"params:{name}" in node.inputs}
            models += [_state_models(learner) for learner in learners(taken).values()] or [STATE_MODELS]
    return max(models) * (STATES_KEPT + 1) * model_bytes(blocks["model"])


def _state_models(learner: LearnerConfig) -> int:
    """What a state of a learner holds, in models."""
    moments = 2
    own = STATE_MODELS if learner.adapter is None else STATE_MODELS - moments
    # A critic on a trunk of its own is another model, with its moments.
    return own + (1 + moments if learner.critic is not None and learner.critic.trunk == "own" else 0)


def model_bytes(model: ModelConfig) -> int:
    """Bytes of a model's folder as training leaves it; 0 where the model would have to be fetched first.

    The folder it comes from says little: the embedded weights lie in bfloat16 and are trained, and stored, in float32.
    """
    folder = folder_at_hand(model)
    if folder is None:
        return 0
    others = folder_size(folder) - sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return weight_count(folder) * (4 if model.dtype == "float32" else 2) + others


def _most_episodes(blocks: Mapping[str, Any]) -> int:
    """Episodes of the largest folder of them."""
    collect, policy = blocks["collect"], blocks["policy"]
    return int(max(collect.tasks * collect.episodes_per_task, policy.tasks_per_iteration * policy.group_size))


def _folder(catalog: DataCatalog, name: str) -> Path | None:
    dataset = catalog.get(name)
    return Path(dataset._filepath) if isinstance(dataset, AbstractVersionedDataset) else None


def _places(data_root: str, folders: Iterable[Path]) -> Iterator[str]:
    """Folders of results that cannot be made or written to, each reason once."""
    for reason in dict.fromkeys(reason for folder in folders if (reason := refusal(folder)) is not None):
        yield f"parameter data_root is {data_root!r}, but {reason}: put that right, or {OTHER_DATA_ROOT}"


def _scratch() -> Iterator[str]:
    """Where results are prepared. Python passes over a TMPDIR that it cannot write to without a word."""
    given = os.environ.get("TMPDIR")
    if given:
        reason = refusal(Path(given)) if os.path.lexists(given) else "there is no such folder"
        if reason is not None:
            yield (
                f"TMPDIR is {given!r}, but {reason}: models and episodes are prepared there before they are stored, "
                "so make that folder, set TMPDIR to another, or unset it"
            )
            return
    try:
        tempfile.gettempdir()
    except OSError as error:
        yield f"TMPDIR is not set and no usual folder for temporary files can be written ({error}): set TMPDIR to one"
