"""The weight that a linear layer acts with: its own, or with a LoRA adapter (arXiv 2106.09685) folded in.

What samples, what trains and what is stored all take it from here, so they agree to the last bit. Adapters are
layers of the package peft, which is imported only where a model holds one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def is_adapted(module: nn.Module) -> bool:
    """Whether a module is a linear layer of torch with a plain LoRA adapter around it."""
    if not type(module).__module__.startswith("peft."):
        return False
    from peft.tuners.lora.layer import Linear

    layer: Any = module
    plain = type(module) is Linear and type(layer.base_layer) is nn.Linear
    return plain and not layer.lora_variant and not layer.merged


def adapted_layers(model: PreTrainedModel) -> dict[str, Any]:
    """Name -> layer, for all layers of a model that carry an adapter."""
    return {name: module for name, module in model.named_modules() if is_adapted(module)}


def effective_weight(linear: Any) -> torch.Tensor:
    """W + scale * B A where a LoRA adapter is on, W elsewhere.

    Args:
        linear: a linear layer with W [out, in]; A is [rank, in], B is [out, rank].

    Returns:
        [out, in]: the layer's own parameter where nothing is folded in, else a new tensor in float32 through
        which gradients reach A and B.
    """
    weight: torch.Tensor = linear.weight
    if not is_adapted(linear) or linear.disable_adapters:
        return weight
    for name in linear.active_adapters:
        a, b = linear.lora_A[name].weight, linear.lora_B[name].weight
        weight = torch.addmm(weight.float(), b, a, alpha=linear.scaling[name])
    return weight
