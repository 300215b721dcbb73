"""Which engine runs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from worldwise.generation.decoder import unsupported
from worldwise.generation.hf_engine import HFEngine
from worldwise.generation.protocol import Engine
from worldwise.generation.torch_engine import TorchEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def make_engine(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    capacity: int,
    max_length: int,
    dtype: torch.dtype | None = None,
) -> Engine:
    """The fast engine where it knows the architecture, else the one that runs every model.

    Args:
        model: its parameters are read.
        tokenizer: of the same model.
        capacity: slots.
        max_length: most tokens in a slot.
        dtype: of the engine's copies of the weights and of its cache; None = as the weights.

    Raises:
        ValueError: the tokenizer knows tokens that the model does not, a size out of range, or another type than
            the weights' for a model that only its own forward pass can run.
    """
    vocabulary = int(model.config.get_text_config().vocab_size)
    if len(tokenizer) > vocabulary:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, the model {vocabulary}: they do not belong together, "
            f"or tokens were added without model.resize_token_embeddings"
        )
    reason = unsupported(model)
    if reason is None:
        return TorchEngine(model, capacity, max_length, dtype=dtype or model.dtype)
    if dtype not in (None, model.dtype):
        raise ValueError(
            f"model.sampler_dtype {str(dtype).removeprefix('torch.')} needs the engine with own copies of the "
            f"weights, which cannot run this model: {reason}; set model.sampler_dtype to null"
        )
    return HFEngine(model, capacity, max_length)
