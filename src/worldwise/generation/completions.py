"""What an engine may answer at all: checked at every turn, since an engine may be a program that others wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worldwise.generation.protocol import Completion, Request


class CompletionError(RuntimeError):
    """An engine's answer is none. The message says what it is instead."""


def check_completions(completions: Sequence[Completion], requests: Sequence[Request], max_tokens: int) -> None:
    """One completion per request, each with tokens from 0 on, as many numbers as tokens, and finite ones.

    Raises:
        CompletionError: that does not hold.
    """
    if len(completions) != len(requests):
        raise CompletionError(f"{len(completions)} completions came back for {len(requests)} requests")
    for completion in completions:
        ids, numbers = completion.token_ids, (completion.logprobs, completion.entropies)
        if ids.ndim != 1 or any(own.shape != ids.shape for own in numbers):
            shapes = ", ".join(str(own.shape) for own in (ids, *numbers))
            raise CompletionError(f"tokens, log-probabilities and entropies have shapes {shapes}: they must be equal")
        if not np.issubdtype(ids.dtype, np.integer) or (len(ids) and ids.min() < 0):
            raise CompletionError(f"a completion has tokens of {ids.dtype} from {ids.min()} on: ids are integers >= 0")
        if len(ids) > max_tokens:
            raise CompletionError(f"a completion has {len(ids)} tokens, {max_tokens} were asked for")
        if not all(np.isfinite(own).all() for own in numbers):
            raise CompletionError("a completion has log-probabilities or entropies that are no finite numbers")
