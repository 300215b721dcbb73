"""Causal attention in blocks of queries, from batched matrix products.

torch's own attention kernel for CPUs has a backward pass that gains nothing from bfloat16 units. In bfloat16 plain
products are about twice as fast; in float32 the kernel is the faster way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

QUERY_BLOCK = 128

KEPT_LIMIT = 2**24
"""Most attention probabilities one call keeps for its backward pass (32 MiB); with more they are computed again."""


def causal_attention(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
    """softmax(q k^T) v.

    Args:
        q: [B, H, T, D], scaled already, contiguous.
        k, v: [B, K, T, D], contiguous; H is a multiple of K and head h uses key head h // (H / K).
        hidden: bool [B, 1, T, T], True where a query may not look, or None for plain causal order.

    Returns:
        [B, T, H * D].
    """
    if q.dtype == torch.bfloat16:
        result: Tensor = BlockAttention.apply(q, k, v, hidden)  # type: ignore[no-untyped-call]
        return result
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    seen = None if hidden is None else ~hidden
    out = functional.scaled_dot_product_attention(q, k, v, seen, is_causal=seen is None, scale=1.0)
    return out.transpose(1, 2).flatten(2)


class BlockAttention(Function):
    """Arguments and result as `causal_attention`.

    A block of queries meets only keys up to its own end, which saves nearly half of the products.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        batch, heads, length, size = q.shape
        out = torch.empty(batch, length, heads, size, dtype=q.dtype)
        values = v.flatten(0, 1)
        kept: list[Tensor] = []
        keep = batch * heads * length * (length + QUERY_BLOCK) // 2 <= KEPT_LIMIT
        for start, stop in _blocks(length):
            probabilities = _probabilities(q, k, hidden, start, stop)
            seen = torch.bmm(probabilities, values[:, :stop])
            out[:, start:stop].copy_(seen.view(batch, heads, stop - start, size).transpose(1, 2))
            if keep:
                kept.append(probabilities)
        ctx.save_for_backward(q, k, v, hidden, *kept)
        return out.view(batch, length, heads * size)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, hidden, *kept = ctx.saved_tensors
        batch, heads, length, size = q.shape
        keys, values = k.flatten(0, 1), v.flatten(0, 1)
        given = gradients[0].view(batch, length, heads, size).transpose(1, 2)
        to_q = torch.empty_like(q)
        # Sums over blocks, transposed ([D, T]): so it is the small factor of these products that gets transposed.
        to_k, to_v = (torch.zeros(len(keys), size, length) for _ in range(2))
        for number, (start, stop) in enumerate(_blocks(length)):
            probabilities = kept[number] if kept else _probabilities(q, k, hidden, start, stop)
            out = _block(given, k.shape[1], start, stop)
            to_v[:, :, :stop] += torch.bmm(out.transpose(1, 2), probabilities)
            to_probabilities = torch.bmm(out, values[:, :stop].transpose(1, 2))
            to_scores = torch.ops.aten._softmax_backward_data(to_probabilities, probabilities, -1, q.dtype)
            to_k[:, :, :stop] += torch.bmm(_block(q, k.shape[1], start, stop).transpose(1, 2), to_scores)
            part = torch.bmm(to_scores, keys[:, :stop])
            to_q[:, :, start:stop].copy_(part.view(batch, heads, stop - start, size))
        return to_q, _turned(to_k, k), _turned(to_v, v), None


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + QUERY_BLOCK, length)) for start in range(0, length, QUERY_BLOCK)]


def _probabilities(q: Tensor, k: Tensor, hidden: Tensor | None, start: int, stop: int) -> Tensor:
    """[B * K, (H / K) * (stop - start), stop]: where the queries start..stop look."""
    batch, heads, _, _ = q.shape
    scores = torch.bmm(_block(q, k.shape[1], start, stop), k.flatten(0, 1)[:, :stop].transpose(1, 2))
    by_head = scores.view(batch, heads, stop - start, stop)
    if hidden is None:
        later = torch.ones(stop - start, stop - start, dtype=torch.bool).triu_(1)
        by_head[..., start:].masked_fill_(later, -torch.inf)
    else:
        by_head.masked_fill_(hidden[:, :, start:stop, :stop], -torch.inf)
    return scores.softmax(-1)


def _block(x: Tensor, keys: int, start: int, stop: int) -> Tensor:
    """[B * K, (H / K) * (stop - start), D]: queries start..stop of all heads that share a key head, stacked."""
    batch, heads, _, size = x.shape
    return x[:, :, start:stop].reshape(batch * keys, heads // keys * (stop - start), size)


def _turned(sums: Tensor, like: Tensor) -> Tensor:
    """[B * K, D, T] -> [B, K, T, D] in the data type of `like`."""
    return torch.empty_like(like).flatten(0, 1).copy_(sums.transpose(1, 2)).view_as(like)
