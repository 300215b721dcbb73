"""Gradient checkpointing: layers are computed again in the backward pass instead of kept (arXiv:1604.06174).

Memory holds one layer's activations and the input of every layer instead of all activations; the numbers stay the same,
a step takes about a third more time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from worldwise.training.errors import LearnerError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Result = TypeVar("Result")


def recompute(function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """What the function returns; it runs again in the backward pass. It must draw nothing random."""
    result: Result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False, **named)
    return result


@contextmanager
def layers_recomputed(model: PreTrainedModel, wanted: bool) -> Iterator[None]:
    """A forward pass in here keeps only the inputs of the model's layers, where it is `wanted` and gradients flow.

    transformers' own switch asks for training mode, and with it for dropout.

    Raises:
        LearnerError: the model's layers are not marked as such.
    """
    if not (wanted and torch.is_grad_enabled()):
        yield
        return
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise LearnerError(
            f"gradient_checkpointing is true and transformers marks no layers of {type(model).__name__} for it: "
            "set learner.gradient_checkpointing to false"
        )
    for layer in layers:
        layer.forward = partial(recompute, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
