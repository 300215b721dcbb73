"""Weights and optimizers as safetensors files, for the states of a training loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def store_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Writes a file.

    Raises:
        OSError: the disk refused.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def detached(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of their own: tied weights share memory, which safetensors refuses."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def flat(state: Mapping[int, Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """An optimizer's state, `{0: {"exp_avg": t}}`, as `{"0.exp_avg": t}`."""
    return detached({f"{index}.{name}": value for index, own in state.items() for name, value in own.items()})


def nested(tensors: Mapping[str, torch.Tensor]) -> dict[int, dict[str, torch.Tensor]]:
    """What `flat` was given."""
    found: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        index, _, rest = name.partition(".")
        found.setdefault(int(index), {})[rest] = value
    return found
