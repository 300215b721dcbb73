"""The default engine: batched sampling over contexts that stay cached between turns.

Contexts are append-only, so a turn costs its own tokens only. The last sampled token of a response is not in the
cache yet (its keys and values need another pass); it waits as `pending` and runs together with the next turn's
tokens. Contexts that are equal when they enter a batch are computed and stored once.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from worldwise.generation.decoder import Decoder
from worldwise.generation.kv_cache import (
    DecodePlan,
    KVCache,
    Layout,
    PrefillPlan,
    Span,
    sharing_order,
    workspace_size,
)
from worldwise.generation.protocol import Completion, EngineStats, Request, Sampling
from worldwise.generation.response import Response, check_requests, check_tokens
from worldwise.generation.sampling import draw

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WORTH_SHARING = 16
"""Tokens from which equal pending tokens are run and stored once: reading a span apart costs a call a step."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What a slot holds.

    Attributes:
        shared: spans of the context that lie in other rows.
        start: where the part in the slot's own row begins.
        cached: tokens whose keys and values are stored, shared ones included.
        pending: tokens behind those, not run yet.
    """

    shared: tuple[Span, ...] = ()
    start: int = 0
    cached: int = 0
    pending: tuple[int, ...] = ()


@dataclass(slots=True)
class _Live:
    """A slot while a call works on it.

    Attributes:
        slot: its number, which is its cache row too.
        context: as it will be kept; `pending` are the tokens to run next.
        keep: the slot keeps what this call adds.
        response: what is sampled (None: nothing).
    """

    slot: int
    context: _Context
    keep: bool = True
    response: Response | None = None

    def layout(self, more: int = 0) -> Layout:
        """Where the context lies with `more` tokens behind the cached ones."""
        own = Span(self.slot, self.context.start, self.context.cached + more)
        return Layout(self.context.shared, own)


@dataclass(slots=True)
class _Scratch:
    """Workspaces for attention scores, kept because fresh memory of that size costs page faults."""

    device: torch.device
    dtype: torch.dtype
    tensors: list[torch.Tensor] = field(default_factory=list)

    def get(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.tensors or self.tensors[0].numel() < size:
            self.tensors = [torch.zeros(size, dtype=self.dtype, device=self.device) for _ in range(2)]
        return self.tensors[0], self.tensors[1]


class TorchEngine:
    """An `Engine` for Llama, Qwen2 and Qwen3 models; reads the trainer's own parameters."""

    def __init__(
        self,
        model: PreTrainedModel,
        capacity: int,
        max_length: int,
        dtype: torch.dtype = torch.float32,
        chunk_tokens: int = 256,
    ) -> None:
        """Allocates the cache (memory is taken as contexts grow).

        Args:
            model: its parameters are read now and at every `refresh`.
            capacity: slots, >= 1.
            max_length: most tokens in a slot, at most the model's positions.
            dtype: of the engine's weights and activations. float32 gives the log-probabilities of the model's own
                float32 forward pass to 1e-5; bfloat16 halves memory traffic and is off by ~0.03 nats a token.
            chunk_tokens: context tokens in one forward pass; small enough for the processor's caches.

        Raises:
            ValueError: a size out of range, or a model that `decoder.unsupported` refuses.
        """
        for name, value in (("capacity", capacity), ("max_length", max_length), ("chunk_tokens", chunk_tokens)):
            if value < 1:
                raise ValueError(f"{name} is {value}: at least 1")
        self._decoder = Decoder(model, max_length, dtype)
        # torch copies parts of a bfloat16 cache before it multiplies with them on a CPU: twice the time of float32.
        held = torch.float32 if self._decoder.device.type == "cpu" else dtype
        self._cache = KVCache(
            self._decoder.layers,
            capacity,
            self._decoder.kv_heads,
            max_length,
            self._decoder.head_dim,
            held,
            self._decoder.device,
        )
        self._capacity, self._max_length, self._chunk_tokens = capacity, max_length, chunk_tokens
        self._groups = self._decoder.heads // self._decoder.kv_heads
        self._scratch = _Scratch(self._decoder.device, held)
        self._free = list(range(capacity))
        self._open: dict[int, _Context] = {}
        self._stats = EngineStats()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def stats(self) -> EngineStats:
        return self._stats

    def open(self) -> int:
        if not self._free:
            raise RuntimeError(f"all {self._capacity} slots are open: close one or raise the engine's capacity")
        slot = heapq.heappop(self._free)
        self._open[slot] = _Context()
        return slot

    def fork(self, slot: int) -> int:
        context = self._context(slot)
        child = self.open()
        own = Span(slot, context.start, context.cached)
        shared = (*context.shared, own) if own.stop > own.start else context.shared
        self._open[child] = _Context(shared, context.cached, context.cached, context.pending)
        return child

    def close(self, slot: int) -> None:
        self.clear(slot)
        del self._open[slot]
        heapq.heappush(self._free, slot)

    def clear(self, slot: int) -> None:
        self._context(slot)
        for other, context in self._open.items():
            if any(span.row == slot for span in context.shared):
                self._cache.copy(context.shared, other)
                self._open[other] = _Context((), 0, context.cached, context.pending)
        self._open[slot] = _Context()

    def length(self, slot: int) -> int:
        context = self._context(slot)
        return context.cached + len(context.pending)

    def refresh(self) -> None:
        self._decoder.refresh()
        self._drop_contexts()

    def _drop_contexts(self) -> None:
        for slot in self._open:
            self._open[slot] = _Context()

    def _context(self, slot: int) -> _Context:
        if slot not in self._open:
            raise ValueError(f"slot {slot} is not open: open() or fork() gives one")
        return self._open[slot]

    def _check_fresh(self) -> None:
        if self._decoder.stale:
            raise RuntimeError("the model's weights changed since the engine read them: call refresh() first")

    @torch.no_grad()
    def extend(self, contexts: Mapping[int, Sequence[int]]) -> None:
        self._check_fresh()
        started = time.perf_counter()
        live = []
        for slot, ids in contexts.items():
            check_tokens(ids, self._decoder.vocabulary)
            length = self.length(slot) + len(ids)
            if length > self._max_length:
                raise ValueError(
                    f"slot {slot} would hold {length} tokens, max_length is {self._max_length}: "
                    f"clear it or make the engine longer"
                )
            live.append(_Live(slot, self._with_pending(slot, ids)))
        # The last token waits: whoever samples next needs its logits.
        last = {each.slot: each.context.pending[-1:] for each in live}
        for each in live:
            each.context = _replaced(each.context, pending=each.context.pending[:-1])
        self._prefill([each for each in live if each.context.pending], sample=False)
        for each in live:
            self._open[each.slot] = _replaced(each.context, pending=last[each.slot])
        self._stats.seconds += time.perf_counter() - started

    @torch.no_grad()
    def generate(self, requests: Sequence[Request], sampling: Sampling, stop_ids: Sequence[int]) -> list[Completion]:
        self._check_fresh()
        check_requests(requests, self._open, self._decoder.vocabulary)
        started = time.perf_counter()
        stops = frozenset(stop_ids)
        responses, live = [], []
        for request in requests:
            context = self._with_pending(request.slot, request.new_ids)
            length = context.cached + len(context.pending)
            if length == 0:
                raise ValueError(f"slot {request.slot} is empty and new_ids too: there is nothing to continue")
            response = Response(request, sampling, stops, self._max_length - length)
            responses.append(response)
            if response.finish is None:
                live.append(_Live(request.slot, context, request.keep, response))
        try:
            self._answer(live, sampling)
        except FloatingPointError:
            # NaN would outlive the weights that made it: masked attention still multiplies what lies there.
            self._drop_contexts()
            self._cache.reset()
            self._scratch.tensors = []
            raise
        self._stats.sampled_tokens += sum(len(response.tokens) for response in responses)
        self._stats.seconds += time.perf_counter() - started
        return [response.completion() for response in responses]

    def _with_pending(self, slot: int, ids: Sequence[int]) -> _Context:
        context = self._context(slot)
        return _replaced(context, pending=(*context.pending, *(int(token) for token in ids)))

    def _answer(self, live: Sequence[_Live], sampling: Sampling) -> None:
        """Samples all responses to their ends and puts what is kept into the slots."""
        growing = [each for each in live if self._settle(each, self._force(each))]
        logits = self._prefill(growing, sample=True) if growing else None
        plan: DecodePlan | None = None
        steps = 0
        while logits is not None:
            self._sample(growing, logits, sampling)
            remaining = [each for each in growing if self._settle(each, self._force(each))]
            if not remaining:
                return
            if len(remaining) < len(growing):
                plan = None
            growing = remaining
            if any(len(each.context.pending) > 1 for each in growing):
                plan, logits = None, self._prefill(growing, sample=True)
                continue
            if plan is None or steps == plan.steps:
                growing.sort(key=lambda each: sharing_order(each.layout()))
                plan, steps = self._decode_plan(growing), 0
            else:
                plan.advance()
            steps += 1
            logits = self._decode(growing, plan)

    def _force(self, each: _Live) -> Sequence[int]:
        return each.response.take_forced() if each.response is not None else ()

    def _settle(self, each: _Live, forced: Sequence[int]) -> bool:
        """Queues forced tokens; stores the context of a finished response. True while it grows."""
        if forced:
            each.context = _replaced(each.context, pending=(*each.context.pending, *forced))
        if each.response is None or each.response.finish is None:
            return True
        if each.keep:
            self._open[each.slot] = each.context
        return False

    def _sample(self, growing: Sequence[_Live], logits: torch.Tensor, sampling: Sampling) -> None:
        responses = [each.response for each in growing if each.response is not None]
        numbers = torch.tensor([response.number for response in responses], dtype=torch.float64)
        choices = [response.choices for response in responses]
        drawn = draw(logits, numbers.to(logits.device), sampling, choices)
        columns = zip(drawn.tokens.tolist(), drawn.logprobs.tolist(), drawn.entropies.tolist(), strict=True)
        for each, response, (token, logprob, entropy) in zip(growing, responses, columns, strict=True):
            response.take(token, logprob, entropy)
            each.context = _replaced(each.context, pending=(token,))

    def _prefill(self, live: Sequence[_Live], sample: bool) -> torch.Tensor | None:
        """Runs all pending tokens; logits [len(live), V] behind them, if asked for."""
        groups: dict[object, list[_Live]] = {}
        for each in live:
            context = each.context
            equal = context.start == context.cached and len(context.pending) >= _WORTH_SHARING
            key = (context.shared, context.pending) if equal else each.slot
            groups.setdefault(key, []).append(each)
        # A context that is kept must not lie in the row of one that is not.
        leaders = [max(group, key=lambda each: each.keep) for group in groups.values()]
        hidden = self._run(leaders)
        sources = {}
        for index, (leader, group) in enumerate(zip(leaders, groups.values(), strict=True)):
            before, count = leader.context, len(leader.context.pending)
            reach = Span(leader.slot, before.start, before.cached + count)
            leader.context = _replaced(before, cached=reach.stop, pending=())
            for each in group:
                sources[each.slot] = index
                if each is not leader:
                    each.context = _Context((*before.shared, reach), reach.stop, reach.stop)
                    self._count("shared_tokens", count)
        if not sample:
            return None
        logits = self._decoder.logits(hidden)
        if len(leaders) == len(live):
            return logits
        return logits[torch.tensor([sources[each.slot] for each in live], device=logits.device)]

    def _run(self, live: Sequence[_Live]) -> torch.Tensor:
        """Runs the pending tokens of distinct contexts in chunks; the hidden state [len(live), H] of each last."""
        last: list[torch.Tensor] = []
        chunk: list[tuple[_Live, int, int]] = []
        size = 0
        for each in live:
            pending = len(each.context.pending)
            # Long contexts are cut at multiples of their own, so that results do not depend on the batch.
            for first in range(0, pending, self._chunk_tokens):
                count = min(self._chunk_tokens, pending - first)
                if size + count > self._chunk_tokens:
                    last += self._forward(chunk)
                    chunk, size = [], 0
                chunk.append((each, first, count))
                size += count
        last += self._forward(chunk)
        self._stats.prefix_tokens += sum(len(each.context.pending) for each in live)
        return torch.stack(last)

    def _forward(self, chunk: Sequence[tuple[_Live, int, int]]) -> list[torch.Tensor]:
        """One pass over pieces (context, first pending token, count); hidden states of contexts that it ends."""
        if not chunk:
            return []
        ids: list[int] = []
        rows: list[int] = []
        positions: list[int] = []
        for each, first, count in chunk:
            ids += each.context.pending[first : first + count]
            rows += [each.slot] * count
            start = each.context.cached + first
            positions += range(start, start + count)
        layouts = [each.layout(first + count) for each, first, count in chunk]
        plan = PrefillPlan(self._cache, layouts, [count for _, _, count in chunk], self._groups, self._decoder.dtype)
        packed = torch.tensor([ids, rows, positions], device=self._decoder.device)
        hidden = self._decoder.forward(packed[0], packed[1], packed[2], self._cache, plan)
        ends = []
        index = -1
        for each, first, count in chunk:
            index += count
            if first + count == len(each.context.pending):
                ends.append(hidden[index])
        return ends

    def _decode_plan(self, growing: Sequence[_Live]) -> DecodePlan:
        layouts = [each.layout(1) for each in growing]
        scratch = self._scratch.get(workspace_size(layouts, self._decoder.heads, self._max_length))
        self._count("decode_plans", 1)
        return DecodePlan(self._cache, layouts, self._groups, *scratch)

    def _decode(self, growing: Sequence[_Live], plan: DecodePlan) -> torch.Tensor:
        """Runs the one pending token of each context; logits [len(growing), V]."""
        columns = [(each.context.pending[0], each.slot, each.context.cached) for each in growing]
        packed = torch.tensor(columns, device=self._decoder.device).t()
        hidden = self._decoder.forward(packed[0], packed[1], packed[2], self._cache, plan)
        for each in growing:
            each.context = _replaced(each.context, cached=each.context.cached + 1, pending=())
        self._count("decode_steps", 1)
        return self._decoder.logits(hidden)

    def _count(self, name: str, more: int) -> None:
        self._stats.extra[name] = self._stats.extra.get(name, 0.0) + more


def _replaced(context: _Context, *, cached: int | None = None, pending: Sequence[int]) -> _Context:
    return _Context(context.shared, context.start, context.cached if cached is None else cached, tuple(pending))
