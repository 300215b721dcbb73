"""One copy of a model's weights that several processes read and one of them trains."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ALIGNED = 64
"""Bytes at whose multiples a parameter begins: a cache line, as torch's own allocator has it."""


@dataclass(frozen=True)
class SharedModel:
    """A model for another process: its modules, and where its weights lie in shared memory.

    Sent to a process that starts, it carries one handle per type of number, whatever the model's size.

    Attributes:
        skeleton: the modules; their parameters hold no numbers.
        blocks: the shared memory, one flat tensor per type of number.
        places: parameter name -> (index of the block, offset in it). A tied parameter occurs once.
    """

    skeleton: PreTrainedModel
    blocks: tuple[torch.Tensor, ...]
    places: dict[str, tuple[int, int]]

    def model(self) -> PreTrainedModel:
        """The model in evaluation mode, on the shared weights: it changes as they do. Call it once."""
        found: dict[int, nn.Parameter] = {}
        for name, parameter in self.skeleton.named_parameters():
            block, offset = self.places[name]
            view = self.blocks[block][offset : offset + parameter.numel()].view(parameter.shape)
            found[id(parameter)] = nn.Parameter(view, requires_grad=False)
        for module in self.skeleton.modules():
            for name, own in module._parameters.items():
                if own is not None:
                    module._parameters[name] = found[id(own)]
        self.skeleton.train(False)
        return self.skeleton


def share_weights(model: PreTrainedModel) -> SharedModel:
    """Move a model's weights into shared memory, if they are not there yet.

    The parameters stay the same objects, so optimizers go on with them, and what writes to them in place
    (an optimizer's step, `load_state_dict`) is seen by all processes.

    Args:
        model: on the CPU.
    """
    parameters = dict(model.named_parameters())
    kinds = sorted({parameter.dtype for parameter in parameters.values()}, key=str)
    blocks = tuple(_shared_block([p for p in parameters.values() if p.dtype == kind]) for kind in kinds)
    places = {name: (kinds.index(p.dtype), int(p.storage_offset())) for name, p in parameters.items()}
    hollow = {id(p): nn.Parameter(p.detach().to("meta"), requires_grad=False) for p in parameters.values()}
    return SharedModel(copy.deepcopy(model, hollow), blocks, places)


def weight_bytes(model: PreTrainedModel) -> int:
    """Memory that the model's parameters take."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


@torch.no_grad()
def _shared_block(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """The flat tensor in shared memory that holds all the parameters, which become views of it."""
    first = parameters[0]
    storages = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    if len(storages) == 1 and first.untyped_storage().is_shared():
        # A view of the whole block: its storage begins where it does.
        count = first.untyped_storage().nbytes() // first.element_size()
        return first.detach().as_strided((count,), (1,), 0)
    step = _ALIGNED // first.element_size()
    offsets = [0]
    for parameter in parameters:
        offsets.append(offsets[-1] + -(-parameter.numel() // step) * step)
    block = torch.zeros(offsets[-1], dtype=first.dtype)
    block.untyped_storage().share_memory_()
    for parameter, offset in zip(parameters, offsets, strict=False):
        view = block[offset : offset + parameter.numel()].view(parameter.shape)
        parameter.data = view.copy_(parameter.data)
    return block
