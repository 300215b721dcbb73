"""One response while it grows: what engines share, whatever computes the logits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from worldwise.generation.protocol import Completion, Request, Sampling
from worldwise.generation.sampling import uniforms

Finish = Literal["stop", "length", "context"]


class Response:
    """The tokens sampled for a request so far, and when they end.

    Attributes:
        request: what was asked.
        tokens, logprobs, entropies: one entry a token.
        finish: why it ended; None while it grows.
    """

    def __init__(self, request: Request, sampling: Sampling, stop_ids: Collection[int], room: int) -> None:
        """A response that has no token yet.

        Args:
            request: what was asked.
            sampling: its `max_tokens` limits the response.
            stop_ids: tokens that end it.
            room: tokens that still fit the slot behind the request's own; at 0 it ends before it begins.
        """
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.entropies: list[float] = []
        self.finish: Finish | None = "context" if room < 1 else None
        self._max_tokens = sampling.max_tokens
        self._room = room
        self._stop_ids = stop_ids
        self._node = 0
        self._numbers = uniforms(request.seed, min(sampling.max_tokens, max(room, 0)))

    @property
    def number(self) -> float:
        """The random number that decides the next token."""
        return float(self._numbers[len(self.tokens)])

    @property
    def choices(self) -> Sequence[int] | None:
        """The token ids that may come next; None: all."""
        if self.request.allowed is None:
            return None
        return sorted(self.request.allowed.children[self._node])

    def take(self, token: int, logprob: float, entropy: float) -> None:
        """Appends a token and sees whether the response ends with it."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)
        if self.request.allowed is not None:
            self._node = self.request.allowed.children[self._node][token]
            if not self.request.allowed.children[self._node]:
                self.finish = "stop"
        if token in self._stop_ids:
            self.finish = "stop"
        elif self.finish is None and len(self.tokens) >= self._max_tokens:
            self.finish = "length"
        elif self.finish is None and len(self.tokens) >= self._room:
            self.finish = "context"

    def take_forced(self) -> list[int]:
        """Appends the tokens that are certain because the restriction leaves one choice; returns them.

        Their log-probability and entropy are exactly 0, so no forward pass is needed to know them.
        """
        first = len(self.tokens)
        while self.finish is None and self.request.allowed is not None:
            children = self.request.allowed.children[self._node]
            if len(children) != 1:
                break
            self.take(next(iter(children)), 0.0, 0.0)
        return self.tokens[first:]

    def completion(self) -> Completion:
        """The finished response.

        Raises:
            RuntimeError: it still grows.
        """
        if self.finish is None:
            raise RuntimeError("the response has not ended yet")
        return Completion(
            token_ids=np.asarray(self.tokens, dtype=np.int32),
            logprobs=np.asarray(self.logprobs, dtype=np.float32),
            entropies=np.asarray(self.entropies, dtype=np.float32),
            finish=self.finish,
        )


def check_requests(requests: Sequence[Request], open_slots: Collection[int], vocabulary: int) -> None:
    """Refuses a batch that cannot be answered, before anything has changed.

    Raises:
        ValueError: a slot that is not open or asked twice, a token id outside the vocabulary, an empty trie.
    """
    seen: set[int] = set()
    for request in requests:
        if request.slot not in open_slots:
            raise ValueError(f"slot {request.slot} is not open: open() or fork() gives one")
        if request.slot in seen:
            raise ValueError(f"slot {request.slot} has two requests in one batch: fork it for the second")
        seen.add(request.slot)
        check_tokens(request.new_ids, vocabulary)
        if request.allowed is not None and not (request.allowed.children and request.allowed.children[0]):
            raise ValueError(f"the request for slot {request.slot} allows no sequence: use build_trie")


def check_tokens(ids: Sequence[int], vocabulary: int) -> None:
    """Refuses ids that the model has no embedding for.

    Raises:
        ValueError: an id outside 0 .. vocabulary - 1.
    """
    if len(ids) and (min(ids) < 0 or max(ids) >= vocabulary):
        raise ValueError(f"token ids {min(ids)}..{max(ids)} lie outside the model's 0..{vocabulary - 1}")
