"""Which engine runs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worldwise.generation.decoder import unsupported
from worldwise.generation.hf_engine import HFEngine
from worldwise.generation.protocol import Engine
from worldwise.generation.torch_engine import TorchEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def make_engine(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, capacity: int, max_length: int) -> Engine:
    """The fast engine where it knows the architecture, else the one that runs every model.

    Args:
        model: its parameters are read, in its own type.
        tokenizer: of the same model.
        capacity: slots.
        max_length: most tokens in a slot.

    Raises:
        ValueError: the tokenizer knows tokens that the model does not, or a size out of range.
    """
    vocabulary = int(model.config.get_text_config().vocab_size)
    if len(tokenizer) > vocabulary:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, the model {vocabulary}: they do not belong together, "
            f"or tokens were added without model.resize_token_embeddings"
        )
    if unsupported(model) is None:
        return TorchEngine(model, capacity, max_length, dtype=model.dtype)
    return HFEngine(model, capacity, max_length)
