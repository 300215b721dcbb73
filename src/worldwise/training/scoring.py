"""Log-probabilities of whole sequences, micro-batch by micro-batch, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.training.batching import Row, micro_batches
from worldwise.training.forward import score_tokens
from worldwise.training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def score_rows(
    model: PreTrainedModel, rows: Sequence[Row], micro_batch_tokens: int, dtype: torch.dtype, ranks: Ranks = ALONE
) -> torch.Tensor:
    """float32 [N] on the model's device: log-probabilities of the scored tokens of all rows, in their order.

    Args:
        model: the weights.
        rows: the sequences.
        micro_batch_tokens: padded tokens per forward pass.
        dtype: of the matrix products in the model's body, float32 or bfloat16.
        ranks: share the work; all get the whole result.
    """
    device = torch.device(model.device)
    flat = torch.zeros(sum(len(row.scored) for row in rows), device=device)
    for micro in micro_batches(rows, micro_batch_tokens, device, ranks):
        flat[torch.from_numpy(micro.places).to(device)] = score_tokens(model, micro, dtype=dtype).logprobs
    ranks.add_up([flat])
    return flat


def by_row(rows: Sequence[Row], flat: torch.Tensor) -> list[NDArray[np.float32]]:
    """float32 [T] per row: values of the scored tokens of all rows, put back to their places; 0 elsewhere."""
    numbers, results, start = flat.cpu().numpy(), [], 0
    for row in rows:
        values = np.zeros(len(row.sequence), dtype=np.float32)
        values[row.scored] = numbers[start : start + len(row.scored)]
        start += len(row.scored)
        results.append(values)
    return results
