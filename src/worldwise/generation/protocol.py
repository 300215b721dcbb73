"""What a generation engine does, whatever runs it: batched turns over open slots.

A slot is one growing token context with its cached state. Requests append tokens to slots and sample a
continuation; the scheduler above decides which slots live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from worldwise.config import FrozenConfig


class Sampling(FrozenConfig):
    """How tokens are drawn.

    Attributes:
        temperature: > 0 samples, 0 takes the most probable token (its log-probability is then 0,
            the distribution being a point).
        top_p: nucleus, (0, 1].
        min_p: drop tokens below this share of the most probable one, [0, 1).
        max_tokens: most tokens in one response.
    """

    temperature: float = Field(1.0, ge=0.0, le=10.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    min_p: float = Field(0.0, ge=0.0, lt=1.0)
    max_tokens: int = Field(32, ge=1)


@dataclass(frozen=True, slots=True)
class Trie:
    """Token sequences that restricted decoding allows: node -> token id -> next node; 0 is the root.

    A node without children ends the response.
    """

    children: tuple[Mapping[int, int], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One response to generate.

    Attributes:
        slot: an open slot.
        new_ids: tokens to append to the slot's context first (may be empty only if the slot is not).
        seed: seed of this response's own random stream; the same request gives the same tokens
            whatever else is in the batch.
        keep: the slot's context keeps `new_ids` and the response; False leaves the slot as it was
            (a look-ahead from the cached prefix).
        allowed: restrict the response to these token sequences.
    """

    slot: int
    new_ids: Sequence[int]
    seed: int
    keep: bool = True
    allowed: Trie | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What came out: see `episodes.record.Turn` for the meaning of the arrays.

    Attributes:
        token_ids: int32 [R], the stop token included if sampled.
        logprobs: float32 [R], nats.
        entropies: float32 [R], nats.
        finish: `stop` (a stop token, or the end of the trie), `length` (max_tokens), `context`
            (the slot is full).
    """

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]
    finish: Literal["stop", "length", "context"]


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine was made.

    Attributes:
        prefix_tokens: context tokens run through the model.
        sampled_tokens: tokens generated.
        seconds: wall seconds spent in `generate`.
    """

    prefix_tokens: int = 0
    sampled_tokens: int = 0
    seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """A model that answers requests in batches."""

    @property
    def capacity(self) -> int:
        """Slots that can be open at once."""
        ...

    @property
    def max_length(self) -> int:
        """Most tokens in one slot."""
        ...

    @property
    def stats(self) -> EngineStats: ...

    def open(self) -> int:
        """A free slot, empty.

        Raises:
            RuntimeError: all slots are open.
        """
        ...

    def fork(self, slot: int) -> int:
        """A free slot with a copy of `slot`'s context.

        Raises:
            RuntimeError: all slots are open.
        """
        ...

    def extend(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Append tokens to open slots (slot -> ids) without sampling, in one batch.

        Several continuations of one context then cost one pass over it: `extend`, then `fork` and `generate`.

        Raises:
            ValueError: a context would exceed `max_length`.
        """
        ...

    def close(self, slot: int) -> None:
        """Give the slot back."""
        ...

    def clear(self, slot: int) -> None:
        """Empty an open slot (a context that restarts)."""
        ...

    def length(self, slot: int) -> int:
        """Tokens in the slot's context, a last sampled token that is not cached yet included."""
        ...

    def generate(self, requests: Sequence[Request], sampling: Sampling, stop_ids: Sequence[int]) -> list[Completion]:
        """Answer all requests, in their order.

        A request that leaves no room for a single token comes back empty with finish `context`, and its slot
        stays as it was.

        Raises:
            ValueError: a slot that is not open or asked twice, an unknown token id, nothing to continue.
            RuntimeError: the model's weights changed and `refresh` was not called.
            FloatingPointError: the logits hold NaN or infinity.
        """
        ...

    def refresh(self) -> None:
        """The model's weights changed: drop everything derived from the old ones, all slots included."""
        ...
