"""LoRA adapters (arXiv 2106.09685): put into a model for a stage, merged into its weights at the end of it.

The layers are those of the package peft. While an adapter is in a model only its matrices train. Merging leaves
a plain model, so what is stored is a folder that transformers and vLLM load as it is, and the next stage starts
from it as from any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from worldwise.generation.effective import adapted_layers, effective_weight
from worldwise.training.adapter_config import AdapterConfig, chosen, installed, missing, unfit
from worldwise.training.errors import LearnerError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "default"


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter inside a model.

    Attributes:
        model: carries it.
        frozen: parameters that trained before and do not while the adapter is there.
    """

    model: PreTrainedModel
    frozen: tuple[nn.Parameter, ...]

    @torch.no_grad()
    def merge(self) -> None:
        """Fold the adapter into the weights and take it out; the model answers as before and is a plain one again.

        Weights are written to in place (they may lie in memory shared with other processes).
        """
        for name, layer in adapted_layers(self.model).items():
            base = layer.base_layer
            base.weight.copy_(effective_weight(layer))
            parent, _, own = name.rpartition(".")
            setattr(self.model.get_submodule(parent), own, base)
        del self.model.peft_config
        for parameter in self.frozen:
            parameter.requires_grad_(True)


def attach(model: PreTrainedModel, config: AdapterConfig, seed: int) -> Adapter:
    """Put an adapter into a model, in place. B starts as 0, so the model answers as before.

    Args:
        model: a plain one.
        config: the settings.
        seed: of A; the global random state stays as it was.

    Raises:
        LearnerError: peft is not installed, a target that the model has not, or a rank above a matrix's smaller
            side.
    """
    if not installed():
        raise LearnerError(missing("adapter"))
    from peft import LoraConfig, inject_adapter_in_model

    shapes = linear_shapes(model)
    findings = list(unfit(config, shapes))
    if findings:
        raise LearnerError("; ".join(findings))
    frozen = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
    made = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=0.0,
        target_modules=chosen(config, shapes),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(made, model, _NAME)
    for layer in adapted_layers(model).values():
        layer.lora_A.float()
        layer.lora_B.float()
    return Adapter(model, frozen)


@contextmanager
def adapter_off(model: PreTrainedModel) -> Iterator[None]:
    """The model as it was before its adapter, which is on again afterwards; without adapter nothing happens."""
    layers: list[Any] = list(adapted_layers(model).values())
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def linear_shapes(model: PreTrainedModel) -> dict[str, tuple[int, int]]:
    """Name -> (out, in) of all linear layers but the output embedding."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module is not head
    }
