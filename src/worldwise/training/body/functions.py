"""Norm, rotary positions and gated MLP as autograd functions with hand-written backward passes.

N tokens, d model width, D head width. "Compute dtype" is that of the matrix products (float32 or bfloat16); the
residual stream and everything inside norms and rotations is float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional


def inverse_rms(x: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(mean(x^2) + epsilon) over the last dimension, which is kept with size 1."""
    squares: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    squares.div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return squares


def rms_norm_backward(gradient: Tensor, x: Tensor, inverse: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of y = x * inverse * weight, where inverse = `inverse_rms(x)`.

    With n = x * inverse and g = dL/dy: dL/dx = inverse * (g w - n mean(g w n)), dL/dw = sum of g n.

    Args:
        gradient: float32 [..., d], overwritten by dL/dx.
        x: float32 [..., d].
        inverse: float32 [..., 1].
        weight: float32 [d], or [H, d] for one weight per head.
    """
    normed = x * inverse
    product = gradient * normed
    if weight.dim() == 1:
        mean = (product @ weight)[..., None].div_(x.shape[-1])
    else:
        mean = (product * weight).mean(-1, keepdim=True)
    gradient.mul_(weight).addcmul_(normed, mean, value=-1.0).mul_(inverse)
    return gradient, product.sum(tuple(range(x.dim() - weight.dim())))


def add_norm(
    x: Tensor, branch: Tensor | None, weight: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """A residual sum and the norm behind it: (x + branch, rms_norm(x + branch)).

    Args:
        x: float32 [N, d].
        branch: [N, d] in the compute dtype, or None for nothing to add.
        weight: float32 [d].
        epsilon: of the norm.
        dtype: of the normed output.
    """
    result: tuple[Tensor, Tensor] = AddNorm.apply(x, branch, weight, epsilon, dtype)  # type: ignore[no-untyped-call]
    return result


def split_heads(
    fused: Tensor, weight: Tensor | None, turn: Tensor, heads: tuple[int, int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Fused projections -> queries, keys, values per head, with rotary positions.

    Heads of queries and keys hold the pairs that are rotated together side by side, so that a rotation is one
    product of complex numbers; their norm, if there is a weight for it, comes first.

    Args:
        fused: [B, T, (H + 2K) D] in the compute dtype: H query heads, K key heads, K value heads.
        weight: float32 [H + K, D], or None for no norm of heads.
        turn: complex64 [B or 1, T, H + K, D / 2], factor of each pair (a, b) taken as a + ib.
        heads: (H, K).
        epsilon: of the norm.

    Returns:
        Contiguous [B, H, T, D], [B, K, T, D], [B, K, T, D] in the compute dtype.
    """
    result: tuple[Tensor, Tensor, Tensor] = Heads.apply(fused, weight, turn, heads, epsilon)  # type: ignore[no-untyped-call]
    return result


def pairs_together(rows: Tensor, size: int) -> Tensor:
    """Rows [H * D, ...] of heads with halves (a..., b...) reordered to (a_1, b_1, a_2, b_2, ...); `size` = D.

    Queries and keys may be reordered alike: their products stay the same.
    """
    return rows.view(-1, 2, size // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def gated_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """down(silu(gate x) * up x): x [N, d] in the compute dtype; weights float32, as torch.nn.Linear keeps them."""
    result: Tensor = GatedMlp.apply(x, gate, up, down)  # type: ignore[no-untyped-call]
    return result


class AddNorm(Function):
    """See `add_norm`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor | None, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Any:
        total = x if branch is None else x + branch
        inverse = inverse_rms(total, epsilon)
        ctx.save_for_backward(total, inverse, weight)
        ctx.branch = None if branch is None else branch.dtype
        return total, (total * inverse).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        total, inverse, weight = ctx.saved_tensors
        through, given = gradients
        own = given.clone() if given.dtype == torch.float32 else given.float()
        gradient, slope = rms_norm_backward(own, total, inverse, weight)
        gradient.add_(through)
        branch = None if ctx.branch is None else gradient.to(ctx.branch)
        return gradient, branch, slope, None, None


class Heads(Function):
    """See `split_heads`."""

    @staticmethod
    def forward(
        ctx: Any, fused: Tensor, weight: Tensor | None, turn: Tensor, heads: tuple[int, int], epsilon: float
    ) -> Any:
        queries, keys = heads
        split = fused.view(*fused.shape[:2], queries + 2 * keys, -1)
        raw = split[:, :, : queries + keys].float()
        x, norm = raw, list[Tensor]()
        if weight is not None:
            inverse = inverse_rms(raw, epsilon)
            x, norm = (raw * inverse).mul_(weight), [raw, inverse, weight]
        turned = _rotate(x, turn)
        ctx.save_for_backward(turn, *norm)
        ctx.heads = heads
        return (
            _by_head(turned[:, :, :queries], fused.dtype),
            _by_head(turned[:, :, queries:], fused.dtype),
            _by_head(split[:, :, queries + keys :], fused.dtype),
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        queries, keys = ctx.heads
        turn, *norm = ctx.saved_tensors
        to_queries, to_keys, to_values = gradients
        batch, _, length, size = to_queries.shape
        given = torch.empty(batch, length, queries + keys, size)
        given[:, :, :queries].copy_(to_queries.transpose(1, 2))
        given[:, :, queries:].copy_(to_keys.transpose(1, 2))
        back, slope = _rotate(given, turn.conj()), None
        if norm:
            back, slope = rms_norm_backward(back, *norm)
        result = torch.empty(batch, length, queries + 2 * keys, size, dtype=to_queries.dtype)
        result[:, :, : queries + keys].copy_(back)
        result[:, :, queries + keys :].copy_(to_values.transpose(1, 2))
        return result.flatten(2), slope, None, None, None


class GatedMlp(Function):
    """See `gated_mlp`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        gate, up, down = gate.to(x.dtype), up.to(x.dtype), down.to(x.dtype)
        opened, raised = x @ gate.t(), x @ up.t()
        activated = functional.silu(opened)
        inner = activated * raised
        ctx.save_for_backward(x, gate, up, down, opened, raised, activated, inner)
        return inner @ down.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, gate, up, down, opened, raised, activated, inner = ctx.saved_tensors
        out = gradients[0].contiguous()
        to_inner = out @ down
        to_raised = to_inner * activated
        to_opened = torch.ops.aten.silu_backward(to_inner.mul_(raised), opened)
        to_x = (to_opened @ gate).addmm_(to_raised, up)
        return to_x, to_opened.t() @ x, to_raised.t() @ x, out.t() @ inner


def _rotate(x: Tensor, turn: Tensor) -> Tensor:
    """float32 [..., D] taken as D / 2 complex numbers times `turn`."""
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)) * turn).flatten(-2)


def _by_head(x: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, T, H, D] -> contiguous [B, H, T, D] in `dtype`."""
    batch, length, heads, size = x.shape
    return torch.empty(batch, heads, length, size, dtype=dtype).copy_(x.transpose(1, 2))
