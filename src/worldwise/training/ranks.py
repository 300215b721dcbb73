"""Data parallelism of the learner: every rank has all sequences of a step and takes its share of the micro-batches.

Token weights are computed over the whole step before it is cut, so the denominators are global without a word between
ranks, and gradients are summed, never averaged: N ranks make the step that one makes, up to the order of sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import distributed

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes that train one model together.

    Attributes:
        number: of this process, 0 ... count - 1.
        count: processes; 1 = this one alone, and nothing is sent.
    """

    number: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process counts what all of them know."""
        return self.number == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This process's part of a list that all have: every `count`-th item."""
        return items[self.number :: self.count]

    def add_up(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replaces tensors, which all have in the same shapes and order, by their sums over the processes."""
        if self.count > 1:
            for tensor in tensors:
                distributed.all_reduce(tensor)

    def add_up_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sums gradients; a process that had no micro-batch has gradients of 0."""
        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)

    def gather(self, content: dict[str, Any], device: torch.device) -> list[dict[str, Any]]:
        """What all processes say, in their order: values that JSON holds."""
        if self.count == 1:
            return [content]
        own = torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8).to(device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([len(own)], device=device))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8, device=device)
        padded[: len(own)] = own
        found = [torch.zeros_like(padded) for _ in range(self.count)]
        distributed.all_gather(found, padded)
        texts = (bytes(text[: int(size)].cpu().numpy()) for text, size in zip(found, sizes, strict=True))
        return [json.loads(text) for text in texts]


ALONE = Ranks()
"""One process."""


def ranks_here() -> Ranks:
    """Those of torch's process group, where one is initialised; else this process alone."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    return Ranks(distributed.get_rank(), distributed.get_world_size())
