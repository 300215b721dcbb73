"""Settings of LoRA adapters, and what can be said about them before torch is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from worldwise.config import FrozenConfig

PACKAGE = "peft"


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


def installed() -> bool:
    """Whether the package that adapters come from is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def missing(parameter: str) -> str:
    """What to say where it is not."""
    return f"{parameter} is given and the package {PACKAGE} is not installed: pip install 'worldwise[lora]'"


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
