"""A model's own forward pass as the judge of engines: what the trainer will compute for the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from worldwise.generation.protocol import Completion, Sampling
from worldwise.generation.sampling import processed_logprobs

Judge = Callable[[PreTrainedModel, Sequence[int], Completion, Sampling], float]


@pytest.fixture(scope="session")
def gap() -> Judge:
    """The largest difference in nats between an engine's log-probabilities and entropies of a response and those
    of one forward pass of the model over prompt and response."""

    def measure(model: PreTrainedModel, prompt: Sequence[int], completion: Completion, sampling: Sampling) -> float:
        tokens = completion.token_ids.tolist()
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].float()
        logprobs = processed_logprobs(logits, sampling)
        chosen = logprobs.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        entropies = torch.special.entr(logprobs.exp()).sum(-1)
        return max(
            float(np.abs(chosen.numpy() - completion.logprobs).max()),
            float(np.abs(entropies.numpy() - completion.entropies).max()),
        )

    return measure
