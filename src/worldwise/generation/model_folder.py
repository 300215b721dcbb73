"""What a model folder holds and what is wrong with it, found from the heads of its files: no weight is read.

Every fault is a `ModelError` of one line that names the file, the folder and what to do, so that a broken folder is
refused before a run begins and not in the middle of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Weights in one file, and the list of the files of weights in several; where both are there the first counts."""

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model")
"""Any of them holds a vocabulary; tokenizer_config.json alone does not."""

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_LFS = b"version https://git-lfs"
_AGAIN = "copy or download it again"

Shapes = dict[str, tuple[int, ...]]


class ModelError(ValueError):
    """A model that cannot be found or loaded; the message says what is missing and what to do."""


def check_model_folder(folder: Path) -> None:
    """Whether a folder holds a whole model: configuration, tokenizer, weights, and that they belong together.

    Raises:
        ModelError: the first fault found.
    """
    check_files(folder)
    model = _without_weights(folder)
    tokenizer = open_tokenizer(folder)
    embedding: Any = model.get_input_embeddings()
    rows = int(embedding.weight.shape[0])
    token, highest = max(_vocabulary(folder, tokenizer).items(), key=lambda entry: entry[1], default=("", -1))
    if highest < 0:
        raise ModelError(f"the tokenizer of the model folder {folder} has no tokens: {_AGAIN}")
    if highest >= rows:
        raise ModelError(
            f"the tokenizer of the model folder {folder} has ids up to {highest} ({token!r}) and the model embeds "
            f"{rows} tokens: take the tokenizer that belongs to these weights, or resize the embedding "
            "(resize_token_embeddings) and save both again"
        )


def check_files(folder: Path) -> None:
    """Whether every file that a model needs is there and whole by itself.

    Raises:
        ModelError: no folder; config.json, tokenizer or safetensors weights absent, cut or unreadable.
    """
    if not folder.is_dir():
        raise ModelError(f"model folder {folder} does not exist")
    read_json(folder, "config.json", "save the model into it (save_pretrained)")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            f"model folder {folder} has no tokenizer (one of {', '.join(TOKENIZER_FILES)}): "
            f"save the tokenizer with save_pretrained into it"
        )
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (folder / name).is_file():
            read_json(folder, name)
    tensor_shapes(folder)


def read_json(folder: Path, name: str, absent: str = _AGAIN) -> dict[str, Any]:
    """A JSON object out of a model folder.

    Args:
        folder: the model folder.
        name: of the file.
        absent: what to do where the file is not there.

    Raises:
        ModelError: no such file, not readable, not a JSON object.
    """
    path = folder / name
    if not path.is_file():
        raise ModelError(f"model folder {folder} has no {name}: {absent}")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{name} of the model folder {folder} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        reason = _pointer(path) or f"is no valid JSON ({error}): {_AGAIN}"
        raise ModelError(f"{name} of the model folder {folder} {reason}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{name} of the model folder {folder} holds a {type(value).__name__}, no object: {_AGAIN}")
    return value


def tensor_shapes(folder: Path) -> Shapes:
    """Name -> shape of every stored tensor; reads the heads of the files only.

    Raises:
        ModelError: no safetensors weights, or a file of them that is absent, cut, or lacks what the index says.
    """
    if (folder / WEIGHTS).is_file():
        return _head(folder, WEIGHTS)
    if not (folder / INDEX).is_file():
        pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
        hint = f" (only {', '.join(pickled)}, and pickled weights are refused)" if pickled else ""
        raise ModelError(
            f"model folder {folder} has no safetensors weights{hint}: "
            f"expected {WEIGHTS} or {INDEX}, which save_pretrained writes"
        )
    listed = read_json(folder, INDEX).get("weight_map")
    if not isinstance(listed, dict) or not listed or not all(isinstance(file, str) for file in listed.values()):
        raise ModelError(f"{INDEX} of the model folder {folder} has no weight_map of tensors and files: {_AGAIN}")
    files = sorted(set(listed.values()))
    absent = [file for file in files if not (folder / file).is_file()]
    if absent:
        raise ModelError(
            f"model folder {folder} lacks {len(absent)} of its {len(files)} files of weights, first {absent[0]} "
            f"(listed in {INDEX}): copy or download what is missing"
        )
    shapes: Shapes = {}
    for file in files:
        held = _head(folder, file)
        lost = [name for name, home in listed.items() if home == file and name not in held]
        if lost:
            raise ModelError(
                f"{file} of the model folder {folder} lacks {lost[0]}, which {INDEX} says it holds: {_AGAIN}"
            )
        shapes |= held
    return shapes


def weight_count(folder: Path) -> int:
    """Number of stored weights, from the heads of the files.

    Raises:
        ModelError: as `tensor_shapes`.
    """
    return sum(math.prod(shape) for shape in tensor_shapes(folder).values())


def open_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder; files only, no network, no code of the folder.

    Raises:
        ModelError: transformers cannot make one of its files.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    # Whatever transformers and tokenizers raise here, they raise about the files: their types are many and unnamed.
    except Exception as error:
        raise ModelError(
            f"the tokenizer of the model folder {folder} cannot be loaded ({_line(error)}): "
            "copy or download its tokenizer files again, or save the tokenizer with save_pretrained into it"
        ) from error
    return tokenizer


def load_weights(folder: Path, **options: Any) -> PreTrainedModel:
    """The causal language model of a folder whose weights fill its config.json exactly.

    Args:
        folder: the model folder.
        options: further arguments of `from_pretrained`: dtype, device_map.

    Raises:
        ModelError: an architecture that transformers does not know, values in config.json that make no model, weights
            that are absent, of another shape, or left over (transformers would warn and go on with a wrong model).
    """
    from transformers import AutoModelForCausalLM

    try:
        with _silence():
            # `output_loading_info` makes it a pair, which the annotation of from_pretrained does not know.
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **options,
            )
    except MemoryError:
        raise
    # As for tokenizers: a value in config.json can break any line of an architecture.
    except Exception as error:
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, which is never run (trust_remote_code is off)"
        else:
            reason = _line(error)
        raise ModelError(
            f"no causal language model can be made of config.json and weights of the model folder {folder} ({reason}): "
            "copy or download it again, or take a model whose architecture transformers has"
        ) from error
    model, info = loaded
    _refuse_unfit(folder, model, info)
    ready: PreTrainedModel = model
    return ready


def _vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase) -> Mapping[str, int]:
    """Token -> id, as stored where the file tells, for some classes of transformers add tokens of their own."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if path.is_file():
        stored: dict[str, int] = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
        return stored
    return tokenizer.get_vocab()


def _without_weights(folder: Path) -> PreTrainedModel:
    """The model with its weights on the device `meta`: names and shapes are compared, nothing is read."""
    return load_weights(folder, device_map="meta")


def _refuse_unfit(folder: Path, model: PreTrainedModel, info: Mapping[str, Any]) -> None:
    """Compares what the files hold with what config.json describes."""
    faults = [f"{name} is absent" for name in sorted(info["missing_keys"])]
    faults += [
        f"{name} has the shape {tuple(found)} and not {tuple(wanted)}"
        for name, found, wanted in sorted(info["mismatched_keys"])
    ]
    # A tensor beside those of a layer that the model has, or of one more layer, is of another model. Tensors of
    # parts that the model does not have at all (a value head, a part that sees) are none of its business.
    own = {_pattern(name).rpartition(".")[0] for name, _ in model.named_parameters()}
    faults += [
        f"{name} has no place in the model"
        for name in sorted(info["unexpected_keys"])
        if _pattern(name).rpartition(".")[0] in own
    ]
    if faults:
        raise ModelError(
            f"the weights in {folder} do not fit its config.json: {len(faults)} tensors are absent, of another shape "
            f"or too many, first: {faults[0]}; the folder is broken or mixes two models, so save or download it again"
        )


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def _head(folder: Path, file: str) -> Shapes:
    """Name -> shape of a safetensors file, which is refused where its length is not what its head says."""
    from safetensors import SafetensorError, safe_open

    path = folder / file
    try:
        with safe_open(path, framework="numpy") as tensors:
            names = tensors.keys()
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    except OSError as error:
        raise ModelError(f"{file} of the model folder {folder} cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        reason = _pointer(path) or f"is cut short or no safetensors file ({_line(error)}): {_AGAIN}"
        raise ModelError(f"{file} of the model folder {folder} {reason}") from error


def _pointer(path: Path) -> str | None:
    """What to do about a file that Git LFS has not fetched yet; None where it is none of those."""
    with path.open("rb") as file:
        begins = file.read(len(_LFS))
    return "is a pointer of Git LFS, not the file: run `git lfs pull` where it comes from" if begins == _LFS else None


def _line(error: BaseException) -> str:
    """The first line of an error's text."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


@contextmanager
def _silence() -> Iterator[None]:
    """Without the library's own report of what does not fit and without its bar; `_refuse_unfit` says it."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
