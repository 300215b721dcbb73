"""A model as a versioned Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from worldwise.datasets.folder import FolderDataset, FolderError

_WEIGHTS = ("*.safetensors",)
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_SHOWN = ("architectures", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "dtype")


class CheckpointDataset(FolderDataset):
    """A folder that transformers and vLLM load as it is: config, weights (safetensors), tokenizer.

    A LoRA adapter is merged before it is stored, so there is one kind of checkpoint.
    """

    def check(self, folder: Path) -> None:
        super().check(folder)
        missing = [] if (folder / "config.json").is_file() else ["config.json"]
        missing += [] if any(any(folder.glob(pattern)) for pattern in _WEIGHTS) else ["weights (*.safetensors)"]
        missing += [] if any((folder / name).is_file() for name in _TOKENIZER) else ["a tokenizer (tokenizer.json)"]
        if missing:
            raise FolderError(f"{folder} is not a complete model folder, it lacks {', '.join(missing)}")
        for pattern in _WEIGHTS:
            for path in sorted(folder.glob(pattern)):
                _check_weights(path)

    def summary(self, folder: Path) -> str:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {path.name: f"{path.stat().st_size / 2**20:.1f} MiB" for path in sorted(folder.iterdir())}
        return json.dumps({"model": {key: config[key] for key in _SHOWN if key in config}, "files": sizes})


def _check_weights(path: Path) -> None:
    """Raises FolderError where a file of weights is cut short, which its head tells."""
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise FolderError(
            f"{path} cannot be read ({error}): if it is damaged or cut short, delete this version and run the node "
            "that makes it again"
        ) from error
