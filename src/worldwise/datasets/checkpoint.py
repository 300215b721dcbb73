"""A model as a versioned Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

from worldwise.datasets.folder import FolderDataset, FolderError
from worldwise.generation.model_folder import ModelError, check_files

_SHOWN = ("architectures", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "dtype")


class CheckpointDataset(FolderDataset):
    """A folder that transformers and vLLM load as it is: config, weights (safetensors), tokenizer.

    A LoRA adapter is merged before it is stored, so there is one kind of checkpoint.
    """

    def check(self, folder: Path) -> None:
        super().check(folder)
        try:
            check_files(folder)
        except ModelError as error:
            raise FolderError(
                f"{error}. If {folder} is a stored version, delete it and run the node that makes it again"
            ) from error

    def summary(self, folder: Path) -> str:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {path.name: f"{path.stat().st_size / 2**20:.1f} MiB" for path in sorted(folder.iterdir())}
        return json.dumps({"model": {key: config[key] for key in _SHOWN if key in config}, "files": sizes})
