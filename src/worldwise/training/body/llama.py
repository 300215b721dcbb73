"""Hidden states of Llama-shaped models (Llama, Qwen2, Qwen3) at the scored places, on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from worldwise.generation.effective import effective_weight, is_adapted
from worldwise.training.body.attention import causal_attention
from worldwise.training.body.functions import add_norm, gated_mlp, pairs_together, split_heads
from worldwise.training.recomputing import recompute

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHAPED = frozenset({"llama", "qwen2", "qwen3"})


def supports(model: PreTrainedModel) -> bool:
    """Whether `hidden_states` computes what the model's own forward pass does.

    Not for models on an accelerator, with quantised or half-precision weights, sliding windows, other activations
    or biases in the MLP, nor with adapters other than plain LoRA.
    """
    config = model.config
    if config.model_type not in SHAPED or model.device.type != "cpu" or config.hidden_act != "silu":
        return False
    if config.model_type != "llama" and set(config.layer_types) != {"full_attention"}:
        return False
    body: Any = model.base_model
    if body.embed_tokens.weight.dtype != torch.float32:
        return False
    known = (type(module) is nn.Linear or is_adapted(module) for layer in body.layers for module in _linears(layer))
    return all(known) and all(layer.mlp.gate_proj.bias is None for layer in body.layers)


def hidden_states(
    model: PreTrainedModel,
    input_ids: Tensor,
    position_ids: Tensor,
    attention: Tensor | None,
    where: Tensor,
    dtype: torch.dtype,
    *,
    recomputed: bool = False,
) -> Tensor:
    """Last hidden states (after the final norm) at some places.

    In the last layer everything behind the attention runs only at those places.

    Args:
        model: one that `supports` accepts.
        input_ids: int64 [B, T].
        position_ids: int64 [B, T] or [1, T].
        attention: bool [B, 1, T, T], True where a token may look, or None for plain causal order.
        where: int64 [N], flat places (row * T + column).
        dtype: compute dtype, float32 or bfloat16.
        recomputed: see `recomputing`.

    Returns:
        float32 [N, d].
    """
    body: Any = model.base_model
    batch, length = input_ids.shape
    hidden = None if attention is None else ~attention
    x = body.embed_tokens(input_ids).flatten(0, 1)
    turn = _turn(body, x, position_ids)
    out: Tensor | None = None

    def through(layer: Any, x: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor]:
        """Residual stream and what is still to be added to it, behind a layer."""
        norm = layer.input_layernorm
        x, normed = add_norm(x, out, norm.weight, norm.variance_epsilon, dtype)
        seen = _attend(layer.self_attn, normed.view(batch, length, -1), turn, hidden).flatten(0, 1)
        if layer is body.layers[-1]:
            x, seen = x.index_select(0, where), seen.index_select(0, where)
        projection = layer.self_attn.o_proj
        added = functional.linear(seen, effective_weight(projection).to(dtype), _bias(projection, dtype))
        norm = layer.post_attention_layernorm
        x, normed = add_norm(x, added, norm.weight, norm.variance_epsilon, dtype)
        mlp = layer.mlp
        weights = (effective_weight(linear) for linear in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        return x, gated_mlp(normed, *weights)

    again = recomputed and torch.is_grad_enabled()
    for layer in body.layers:
        x, out = recompute(through, layer, x, out) if again else through(layer, x, out)
    _, states = add_norm(x, out, body.norm.weight, body.norm.variance_epsilon, torch.float32)
    return states


def _turn(body: Any, x: Tensor, position_ids: Tensor) -> Tensor:
    """complex64 [B or 1, T, H + K, D / 2]: the rotation of each pair, for queries times the attention scale."""
    attention = body.layers[0].self_attn
    cos, sin = body.rotary_emb(x[None], position_ids)
    half = cos.shape[-1] // 2
    turn = torch.complex(cos[..., :half].contiguous(), sin[..., :half].contiguous())[:, :, None]
    config = attention.config
    queries = (turn * attention.scaling).expand(-1, -1, config.num_attention_heads, -1)
    return torch.cat([queries, turn.expand(-1, -1, config.num_key_value_heads, -1)], 2)


def _attend(block: Any, x: Tensor, turn: Tensor, hidden: Tensor | None) -> Tensor:
    config, size = block.config, block.head_dim
    heads = (config.num_attention_heads, config.num_key_value_heads)
    queries, keys, values = (effective_weight(linear) for linear in (block.q_proj, block.k_proj, block.v_proj))
    weight = torch.cat([pairs_together(queries, size), pairs_together(keys, size), values]).to(x.dtype)
    bias = None
    if block.q_proj.bias is not None:
        turned = [pairs_together(block.q_proj.bias, size), pairs_together(block.k_proj.bias, size)]
        bias = torch.cat([*turned, block.v_proj.bias]).to(x.dtype)
    scales, epsilon = None, 0.0
    if config.model_type == "qwen3":
        norms = [pairs_together(norm.weight, size) for norm in (block.q_norm, block.k_norm)]
        scales = torch.stack([norms[0]] * heads[0] + [norms[1]] * heads[1])
        epsilon = block.q_norm.variance_epsilon
    fused = functional.linear(x, weight, bias)
    return causal_attention(*split_heads(fused, scales, turn, heads, epsilon), hidden)


def _bias(linear: nn.Linear, dtype: torch.dtype) -> Tensor | None:
    return None if linear.bias is None else linear.bias.to(dtype)


def _linears(layer: Any) -> list[nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    return [*projections, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
