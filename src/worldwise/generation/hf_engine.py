"""The fallback engine: any causal language model of transformers, through its own forward pass.

One context at a time with a `DynamicCache` of its own, so neither padding nor positions can go wrong; slow, and
meant for architectures that `TorchEngine` does not know.
"""

from __future__ import annotations

import copy
import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from worldwise.generation.protocol import Completion, EngineStats, Request, Sampling
from worldwise.generation.response import Response, check_requests, check_tokens
from worldwise.generation.sampling import draw

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(slots=True)
class _Slot:
    """A context: the model's own cache of `cached` tokens, and tokens behind those that did not run yet."""

    cache: Any
    cached: int
    pending: list[int]

    def copy(self) -> _Slot:
        return _Slot(copy.deepcopy(self.cache), self.cached, list(self.pending))


class HFEngine:
    """An `Engine` for every model whose forward pass takes a transformers `DynamicCache`."""

    def __init__(self, model: PreTrainedModel, capacity: int, max_length: int) -> None:
        """Keeps the model; nothing is copied.

        Args:
            model: runs in evaluation mode during a call and is left in the mode it was in.
            capacity: slots, >= 1.
            max_length: most tokens in a slot, at most the model's positions where it states them.

        Raises:
            ValueError: a size out of range.
        """
        for name, value in (("capacity", capacity), ("max_length", max_length)):
            if value < 1:
                raise ValueError(f"{name} is {value}: at least 1")
        self._model: Any = model
        limit = model.config.to_dict().get("max_position_embeddings", model.config.to_dict().get("n_positions"))
        if limit is not None and max_length > limit:
            raise ValueError(f"max_length {max_length} exceeds the model's {limit} positions: lower it")
        self._vocabulary = int(self._model.config.vocab_size)
        self._capacity, self._max_length = capacity, max_length
        self._free = list(range(capacity))
        self._open: dict[int, _Slot] = {}
        self._stats = EngineStats()
        self.refresh()

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
        self._open[slot] = self._empty()
        return slot

    def fork(self, slot: int) -> int:
        parent = self._slot(slot)
        child = self.open()
        self._open[child] = parent.copy()
        return child

    def close(self, slot: int) -> None:
        self._slot(slot)
        del self._open[slot]
        heapq.heappush(self._free, slot)

    def clear(self, slot: int) -> None:
        self._slot(slot)
        self._open[slot] = self._empty()

    def length(self, slot: int) -> int:
        held = self._slot(slot)
        return held.cached + len(held.pending)

    def refresh(self) -> None:
        for slot in self._open:
            self._open[slot] = self._empty()
        # An adapter that came or went is another set of parameters.
        self._parameters = list(self._model.parameters())
        self._version = self._present_version()

    def extend(self, contexts: Mapping[int, Sequence[int]]) -> None:
        self._check_fresh()
        for slot, ids in contexts.items():
            check_tokens(ids, self._vocabulary)
            length = self.length(slot) + len(ids)
            if length > self._max_length:
                raise ValueError(
                    f"slot {slot} would hold {length} tokens, max_length is {self._max_length}: "
                    f"clear it or make the engine longer"
                )
        with self._running():
            for slot, ids in contexts.items():
                held = self._open[slot]
                held.pending += [int(token) for token in ids]
                last = held.pending[-1:]
                del held.pending[-1:]
                if held.pending:
                    self._run(held)
                held.pending = last

    def generate(self, requests: Sequence[Request], sampling: Sampling, stop_ids: Sequence[int]) -> list[Completion]:
        self._check_fresh()
        check_requests(requests, self._open, self._vocabulary)
        for request in requests:
            if self.length(request.slot) + len(request.new_ids) == 0:
                raise ValueError(f"slot {request.slot} is empty and new_ids too: there is nothing to continue")
        with self._running():
            return [self._answer(request, sampling, frozenset(stop_ids)) for request in requests]

    def _answer(self, request: Request, sampling: Sampling, stop_ids: frozenset[int]) -> Completion:
        room = self._max_length - self.length(request.slot) - len(request.new_ids)
        response = Response(request, sampling, stop_ids, room)
        if response.finish is None:
            held = self._open[request.slot] if request.keep else self._open[request.slot].copy()
            held.pending += [int(token) for token in request.new_ids]
            held.pending += response.take_forced()
            while response.finish is None:
                logits = self._run(held)
                number = torch.tensor([response.number], dtype=torch.float64, device=logits.device)
                drawn = draw(logits, number, sampling, [response.choices])
                token = int(drawn.tokens[0])
                response.take(token, float(drawn.logprobs[0]), float(drawn.entropies[0]))
                held.pending = [token, *response.take_forced()]
        self._stats.sampled_tokens += len(response.tokens)
        return response.completion()

    def _run(self, held: _Slot) -> torch.Tensor:
        """Runs the pending tokens; float32 logits [1, V] behind the last."""
        ids = torch.tensor([held.pending], device=self._model.device)
        output = self._model(input_ids=ids, cache=held.cache, use_cache=True)
        held.cached += len(held.pending)
        self._stats.prefix_tokens += len(held.pending)
        held.pending = []
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Evaluation mode without gradients, timed."""
        started, training = time.perf_counter(), bool(self._model.training)
        self._model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self._model.train(training)
            self._stats.seconds += time.perf_counter() - started

    def _empty(self) -> _Slot:
        from transformers import DynamicCache

        return _Slot(DynamicCache(config=self._model.config), 0, [])

    def _slot(self, slot: int) -> _Slot:
        if slot not in self._open:
            raise ValueError(f"slot {slot} is not open: open() or fork() gives one")
        return self._open[slot]

    def _present_version(self) -> int:
        # torch counts in-place writes to each tensor, and every optimizer step is one.
        return sum(parameter._version for parameter in self._parameters)

    def _check_fresh(self) -> None:
        if self._present_version() != self._version:
            raise RuntimeError("the model's weights changed since the caches were filled: call refresh() first")
