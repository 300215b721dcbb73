"""LoRA adapters (arXiv 2106.09685): put into a model for a stage, merged into its weights at the end of it.

The layers are those of the package peft. While an adapter is in a model only its matrices train. Merging leaves
a plain model, so what is stored is a folder that transformers and vLLM load as it is, and the next stage starts
from it as from any other.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch import nn

from worldwise.config import FrozenConfig
from worldwise.generation.effective import adapted_layers, effective_weight
from worldwise.training.errors import LearnerError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGE = "peft"
_NAME = "default"


class AdapterConfig(FrozenConfig):
    """A LoRA adapter: W + alpha / rank * B A instead of W, where only A [rank, in] and B [out, rank] train.

    There is no dropout: log-probabilities of the learner have to be those of the sampler.

    Attributes:
        rank: of B A, at most the smaller side of every matrix it is put on.
        alpha: scale of B A is alpha / rank, so the rank can change while the learning rate stays.
        targets: names of linear layers, whole or their last parts (`q_proj`); None = all of attention and MLP.
            The output embedding is never one of them.
    """

    rank: int = Field(16, ge=1, le=4096)
    alpha: int = Field(32, ge=1)
    targets: tuple[str, ...] | None = Field(None, min_length=1)


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


def installed() -> bool:
    """Whether the package that adapters come from is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def missing(parameter: str) -> str:
    """What to say where it is not."""
    return f"{parameter} is given and the package {PACKAGE} is not installed: pip install 'worldwise[lora]'"


def linear_shapes(model: PreTrainedModel) -> dict[str, tuple[int, int]]:
    """Name -> (out, in) of all linear layers but the output embedding."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module is not head
    }


def chosen(config: AdapterConfig, names: Iterable[str]) -> list[str]:
    """Those of the names that the adapter goes on."""
    return [name for name in names if config.targets is None or any(_fits(name, target) for target in config.targets)]


def unfit(config: AdapterConfig, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Why an adapter cannot be put on a model.

    Args:
        config: the adapter.
        shapes: name -> (out, in) of the model's linear layers.
    """
    for target in config.targets or ():
        if not any(_fits(name, target) for name in shapes):
            known = sorted({name.rpartition(".")[2] for name in shapes})
            yield f"adapter.targets names {target!r}, which the model has not; it has {', '.join(known) or 'none'}"
    places = chosen(config, shapes)
    if config.targets is None and not places:
        yield "adapter is given and the model has no linear layers it could be put on: set adapter to null"
    for name in places:
        if config.rank > min(shapes[name]):
            yield (
                f"adapter.rank is {config.rank} and {name} is {shapes[name][0]} x {shapes[name][1]}: "
                f"give a rank of at most {min(shapes[name])}, or train all weights (adapter: null)"
            )
            return


def _fits(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")
