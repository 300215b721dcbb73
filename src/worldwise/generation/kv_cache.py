"""The engine's key-value cache: one row a slot, and attention over what is live in it.

Nothing in it moves while contexts grow: new keys and values are written behind the old ones, attention reads
views. A context may begin with spans that lie in other rows (a fork, or equal prompts); those are stored once,
and in a decode step they are read once for all the contexts that share them. Reading keys and values is what
bounds decoding on a CPU, so only live lengths are read: rows are taken one by one, or together where they
are neighbours and about equally long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

_ROUND = 16
"""Lengths are rounded up to this many tokens, so that a decode plan holds for some steps."""
_PADDING_WORTH_A_CALL = 128
"""Tokens of padding that cost about as much time as one more matrix call."""


class Span(NamedTuple):
    """Positions [start, stop) of a context, stored at the same positions of a row."""

    row: int
    start: int
    stop: int


class Layout(NamedTuple):
    """A context as it lies in the cache: consecutive spans from position 0; the last one, in the context's
    own row, is where it grows."""

    shared: tuple[Span, ...]
    own: Span

    @property
    def length(self) -> int:
        return self.own.stop


_Stored = tuple[list[torch.Tensor], list[torch.Tensor]]
"""Per layer: views of keys and of values."""


class KVCache:
    """Keys and values of all layers, each a tensor [rows, key heads, max_length, head_dim]."""

    def __init__(
        self,
        layers: int,
        rows: int,
        heads: int,
        max_length: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._shape = (rows, heads, max_length, head_dim)
        self._layers, self._dtype, self._device = layers, dtype, device
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._views: dict[tuple[int, int, int, int], list[_Stored]] = {}
        self.reset()

    @property
    def max_length(self) -> int:
        return self._shape[2]

    @property
    def heads(self) -> int:
        return self._shape[1]

    @property
    def head_dim(self) -> int:
        return self._shape[3]

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def reset(self) -> None:
        """Everything zero again (finite, above all: masked attention still multiplies what lies there)."""
        self.keys = [self._zeros() for _ in range(self._layers)]
        self.values = [self._zeros() for _ in range(self._layers)]
        self._views.clear()

    def views(self, row: int, rows: int, start: int, stop: int) -> list[_Stored]:
        """Keys (transposed for the product) and values of rows [row, row + rows), positions [start, stop).

        Returns:
            For one row a single pair: per layer keys [heads, head_dim, n] and values [heads, n, head_dim];
            for several rows a pair for each head: per layer keys [rows, head_dim, n], values [rows, n, head_dim].
        """
        key = (row, rows, start, stop)
        found = self._views.get(key)
        if found is None:
            if len(self._views) > 8 * self._shape[0]:
                self._views.clear()
            where: list[tuple[int | slice, int | slice]] = [(row, slice(None))]
            if rows > 1:
                where = [(slice(row, row + rows), head) for head in range(self.heads)]
            found = [
                (
                    [keys[chosen][..., start:stop, :].transpose(-1, -2) for keys in self.keys],
                    [values[chosen][..., start:stop, :] for values in self.values],
                )
                for chosen in where
            ]
            self._views[key] = found
        return found

    def _zeros(self) -> torch.Tensor:
        if self._device.type != "cpu":
            return torch.zeros(self._shape, dtype=self._dtype, device=self._device)
        # numpy takes zero pages from the system one by one as they are first written, so a long
        # max_length costs no memory until contexts are long; torch.zeros would touch them all.
        plain = np.zeros(self._shape, dtype=np.float32 if self._dtype == torch.float32 else np.int16)
        return torch.from_numpy(plain).view(self._dtype)

    def write(
        self, layer: int, rows: torch.Tensor, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Stores keys and values [N, heads, head_dim] at (rows [N], positions [N])."""
        self.keys[layer][rows, :, positions] = keys
        self.values[layer][rows, :, positions] = values

    def copy(self, spans: Sequence[Span], row: int) -> None:
        """Copies spans into a row, at the same positions."""
        for store in (*self.keys, *self.values):
            for span in spans:
                store[row, :, span.start : span.stop] = store[span.row, :, span.start : span.stop]


@dataclass(frozen=True, slots=True)
class _Segment:
    """New tokens [first, last) of a packed prefill: those of one context, or of several with the same shared
    spans; `mask` says which of all their positions each token sees (None: all of them)."""

    first: int
    last: int
    spans: tuple[Span, ...]
    mask: torch.Tensor | None


class PrefillPlan:
    """Attention of packed new tokens, any number a context, each over its own context up to itself."""

    def __init__(
        self, cache: KVCache, layouts: Sequence[Layout], counts: Sequence[int], groups: int, dtype: torch.dtype
    ) -> None:
        """Plans a forward pass.

        Args:
            cache: holds the contexts, the new tokens' places included.
            layouts: the contexts after the new tokens.
            counts: new tokens of each, at least one; they are packed one context after the other.
            groups: query heads per key head.
            dtype: of the queries; keys and values are converted to it.
        """
        self._cache, self._groups, self._dtype = cache, groups, dtype
        self._segments: list[_Segment] = []
        index = first = 0
        while index < len(layouts):
            end = _sharers(layouts, index)
            last = first + sum(counts[index:end])
            owns = [layout.own for layout in layouts[index:end]]
            spans = (*layouts[index].shared, *owns)
            mask = self._mask(spans, owns, counts[index:end]) if last - first > 1 else None
            self._segments.append(_Segment(first, last, spans, mask))
            index, first = end, last

    def _mask(self, spans: Sequence[Span], owns: Sequence[Span], counts: Sequence[int]) -> torch.Tensor:
        """Additive mask [new tokens * groups, positions of all spans]: a token sees the shared spans, and its
        own one up to itself (new tokens are the last of theirs)."""
        device, lengths = self._cache.keys[0].device, [own.stop - own.start for own in owns]
        total = sum(span.stop - span.start for span in spans)
        mask = torch.zeros(sum(counts) * self._groups, total, dtype=self._dtype, device=device)
        start = total - sum(lengths)
        if len(owns) > 1:
            mask[:, start:] = -torch.inf
        row = 0
        for length, count in zip(lengths, counts, strict=True):
            block = mask[row : row + count * self._groups, start : start + length]
            causal = torch.full((count, count), -torch.inf, dtype=self._dtype, device=device).triu_(1)
            block[:, : length - count] = 0.0
            block[:, length - count :] = causal.repeat_interleave(self._groups, dim=0)
            row, start = row + count * self._groups, start + length
        return mask

    def attend(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Attention output [N, heads * head_dim] of scaled queries [N, heads, head_dim]."""
        kv_heads, dim = self._cache.heads, queries.shape[-1]
        out = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for segment in self._segments:
            count = segment.last - segment.first
            # The query heads of one key head become rows of one matrix: keys are read once for all.
            query = queries[segment.first : segment.last].view(count, kv_heads, self._groups, dim)
            query = query.transpose(0, 1).reshape(1, kv_heads, count * self._groups, dim)
            keys, values = self._stored(layer, segment.spans)
            result = torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, attn_mask=segment.mask, scale=1.0
            )
            result = result.view(kv_heads, count, self._groups, dim).transpose(0, 1)
            out[segment.first : segment.last] = result.reshape(count, -1, dim)
        return out.view(out.shape[0], -1)

    def _stored(self, layer: int, spans: Sequence[Span]) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [1, heads, positions, head_dim]: views, or copies where they lie in several rows."""
        keys = [self._cache.keys[layer][s.row : s.row + 1, :, s.start : s.stop] for s in spans]
        values = [self._cache.values[layer][s.row : s.row + 1, :, s.start : s.stop] for s in spans]
        if len(spans) == 1:
            return keys[0].to(self._dtype), values[0].to(self._dtype)
        return torch.cat(keys, dim=2).to(self._dtype), torch.cat(values, dim=2).to(self._dtype)


def _sharers(layouts: Sequence[Layout], first: int) -> int:
    """The end of the run of contexts from `first` on that are attended together: same shared spans, and own
    parts that in sum are no longer than those, so that what is masked away costs less than what is saved."""
    shared = layouts[first].shared
    budget = sum(span.stop - span.start for span in shared)
    end = first
    while end < len(layouts) and layouts[end].shared == shared:
        budget -= layouts[end].own.stop - layouts[end].own.start
        if budget < 0:
            break
        end += 1
    return max(end, first + 1)


class _Job(NamedTuple):
    """Contexts [first, last) of the batch against positions [start, stop) of `rows` cache rows from `row` on:
    either one row for all of them, or as many rows as contexts."""

    first: int
    last: int
    row: int
    rows: int
    start: int
    stop: int


class _Product(NamedTuple):
    """Views for one matrix call a layer, batched over its first dimension: a job of one row is batched over
    key heads, a job of several rows takes one such call a key head, batched over rows.

    Shapes: queries, out [batch, m, head_dim]; scores, probs [batch, m, n]; per layer keys [batch, head_dim, n]
    and values [batch, n, head_dim].
    """

    adds: bool
    queries: torch.Tensor
    scores: torch.Tensor
    probs: torch.Tensor
    out: torch.Tensor
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]


class DecodePlan:
    """Attention of one new token a context; holds for `steps` consecutive tokens."""

    def __init__(
        self, cache: KVCache, layouts: Sequence[Layout], groups: int, scores: torch.Tensor, probs: torch.Tensor
    ) -> None:
        """Plans decode steps.

        Args:
            cache: holds the contexts.
            layouts: the contexts, the first step's token included; contexts that share spans should follow
                each other (`sharing_order`).
            groups: query heads per key head.
            scores, probs: flat workspaces of at least `workspace_size` numbers, free of NaN.
        """
        layouts = split_at_sharers(layouts)
        jobs, ends = _jobs(layouts, cache.max_length)
        batch, longest, device = len(layouts), max(ends), scores.device
        self.steps = 1 + min(end - layout.length for end, layout in zip(ends, layouts, strict=True))
        # Key heads first: every product then reads and writes its part in place.
        shape = (cache.heads, batch, groups, longest)
        self._scores = scores[: int(np.prod(shape))].view(shape)
        self._probs = probs[: int(np.prod(shape))].view(shape)
        self._queries = torch.empty(*shape[:3], cache.head_dim, dtype=scores.dtype, device=device)
        self._out = torch.empty_like(self._queries)
        self._next = torch.tensor([layout.length for layout in layouts], device=device)
        self._batch = torch.arange(batch, device=device)
        beyond = torch.arange(longest, device=device) >= self._next[:, None]
        self._mask = torch.zeros(batch, 1, longest, dtype=scores.dtype, device=device)
        self._mask.masked_fill_(beyond[:, None], -torch.inf)
        self._products = [product for job in jobs for product in self._bound(cache, job)]

    def _bound(self, cache: KVCache, job: _Job) -> Iterator[_Product]:
        # Views are made once for all steps and layers: making them costs as much as a small product.
        contexts, positions = slice(job.first, job.last), slice(job.start, job.stop)
        for head, (keys, values) in enumerate(cache.views(job.row, job.rows, job.start, job.stop)):
            chosen = slice(None) if job.rows == 1 else head
            parts = [held[chosen, contexts] for held in (self._queries, self._scores, self._probs, self._out)]
            if job.rows == 1:
                parts = [part.flatten(1, 2) for part in parts]
            queries, scores, probs, out = parts
            yield _Product(job.start > 0, queries, scores[..., positions], probs[..., positions], out, keys, values)

    def advance(self) -> None:
        """Moves on by one token a context."""
        self._mask[self._batch, 0, self._next] = 0.0
        self._next += 1

    def attend(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Attention output [B, heads * head_dim] of scaled queries [B, heads, head_dim]."""
        heads, batch, groups, dim = self._queries.shape
        self._queries.copy_(queries.view(batch, heads, groups, dim).transpose(0, 1))
        for product in self._products:
            torch.bmm(product.queries, product.keys[layer], out=product.scores)
        self._scores.add_(self._mask)
        torch.softmax(self._scores, dim=-1, out=self._probs)
        for product in self._products:
            if product.adds:
                product.out.baddbmm_(product.probs, product.values[layer])
            else:
                torch.bmm(product.probs, product.values[layer], out=product.out)
        return self._out.transpose(0, 1).reshape(batch, heads * groups * dim)


def sharing_order(layout: Layout) -> tuple[tuple[Span, ...], int]:
    """Sort key that brings contexts with shared spans together, and neighbouring rows otherwise."""
    return (*layout.shared, layout.own), layout.own.row


def split_at_sharers(layouts: Sequence[Layout]) -> list[Layout]:
    """The same contexts, where one whose own span others share reads that part as a shared one too."""
    shared = {span for layout in layouts for span in layout.shared}
    owners: dict[int, int] = {}
    for span in shared:
        owners[span.row] = max(owners.get(span.row, 0), span.stop)
    split = []
    for layout in layouts:
        own = layout.own
        head = Span(own.row, own.start, owners.get(own.row, 0))
        if head in shared and head.stop < own.stop:
            layout = Layout((*layout.shared, head), Span(own.row, head.stop, own.stop))
        split.append(layout)
    return split


def workspace_size(layouts: Sequence[Layout], query_heads: int, max_length: int) -> int:
    """Numbers that a decode plan for these contexts needs in each workspace."""
    return len(layouts) * query_heads * _rounded(max(layout.length for layout in layouts), max_length)


def _rounded(length: int, max_length: int) -> int:
    return min(-(-length // _ROUND) * _ROUND, max_length)


def _jobs(layouts: Sequence[Layout], max_length: int) -> tuple[list[_Job], list[int]]:
    """Matrix jobs that cover all contexts, and per context the end of its own job."""
    jobs: list[_Job] = []
    for depth in range(max(len(layout.shared) for layout in layouts)):
        previous: Span | None = None
        for index, layout in enumerate(layouts):
            span = layout.shared[depth] if depth < len(layout.shared) else None
            if span is not None and span == previous:
                jobs[-1] = jobs[-1]._replace(last=index + 1)
            elif span is not None:
                jobs.append(_Job(index, index + 1, span.row, 1, span.start, span.stop))
            previous = span
    own: list[_Job] = []
    padding = 0
    for index, (_, span) in enumerate(layouts):
        stop = _rounded(span.stop, max_length)
        job = own[-1] if own else None
        if job is not None and job.start == span.start and job.row + job.rows == span.row:
            more = abs(stop - job.stop) * (job.rows if stop > job.stop else 1)
            if padding + more <= _PADDING_WORTH_A_CALL * job.rows:
                padding += more
                own[-1] = job._replace(last=index + 1, rows=job.rows + 1, stop=max(stop, job.stop))
                continue
        padding = 0
        own.append(_Job(index, index + 1, span.row, 1, span.start, stop))
    ends = [job.stop for job in own for _ in range(job.rows)]
    return jobs + own, ends
