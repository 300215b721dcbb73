"""Whether policy and world model pull the weights the same way: the cosine of their gradients on one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def probe_parameter(model: PreTrainedModel) -> torch.nn.Parameter:
    """The last trainable matrix before the head: in Llama's shape the last layer's down projection, or its adapter."""
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]  # type: ignore[no-untyped-call]
    embeddings = {id(parameter) for end in ends if end is not None for parameter in end.parameters()}
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2 and id(p) not in embeddings]
    return matrices[-1]


def gradient_cosine(one: torch.Tensor, other: torch.Tensor, parameter: torch.nn.Parameter) -> float | None:
    """Cosine of the gradients of two losses of one forward pass, whose graph stays; None where one of them has none.

    Args:
        one, other: scalars.
        parameter: what both depend on.
    """
    found = []
    for loss in (one, other):
        (gradient,) = torch.autograd.grad(loss, parameter, retain_graph=True, allow_unused=True)
        if gradient is None or not bool(gradient.any()):
            return None
        found.append(gradient.flatten().double())
    return float(torch.nn.functional.cosine_similarity(found[0], found[1], dim=0))
