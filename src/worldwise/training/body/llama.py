"""Hidden states of Llama-shaped models (Llama, Qwen2, Qwen3) at the scored places, on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from worldwise.training.body.attention import causal_attention
from worldwise.training.body.functions import add_norm, gated_mlp, split_heads

SHAPED = frozenset({"llama", "qwen2", "qwen3"})


def supports(model: PreTrainedModel) -> bool:
    """Whether `hidden_states` computes what the model's own forward pass does.

    Not for models on an accelerator, with adapters or quantised layers, sliding windows, other activations or
    biases in the MLP.
    """
    config = model.config
    if config.model_type not in SHAPED or model.device.type != "cpu" or config.hidden_act != "silu":
        return False
    if config.model_type != "llama" and set(config.layer_types) != {"full_attention"}:
        return False
    body: Any = model.base_model
    plain = all(type(module) is nn.Linear for layer in body.layers for module in _linears(layer))
    return plain and all(layer.mlp.gate_proj.bias is None for layer in body.layers)


def hidden_states(
    model: PreTrainedModel,
    input_ids: Tensor,
    position_ids: Tensor,
    attention: Tensor | None,
    where: Tensor,
    dtype: torch.dtype,
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

    Returns:
        float32 [N, d].
    """
    body: Any = model.base_model
    batch, length = input_ids.shape
    hidden = None if attention is None else ~attention
    x = body.embed_tokens(input_ids).flatten(0, 1)
    cos, sin = (table[:, :, None] for table in body.rotary_emb(x[None], position_ids))
    out: Tensor | None = None
    for layer in body.layers:
        last = layer is body.layers[-1]
        norm = layer.input_layernorm
        x, normed = add_norm(x, out, norm.weight, norm.variance_epsilon, dtype)
        seen = _attend(layer.self_attn, normed.view(batch, length, -1), cos, sin, hidden).flatten(0, 1)
        if last:
            x, seen = x.index_select(0, where), seen.index_select(0, where)
        out = functional.linear(seen, layer.self_attn.o_proj.weight.to(dtype), _bias(layer.self_attn.o_proj, dtype))
        norm = layer.post_attention_layernorm
        x, normed = add_norm(x, out, norm.weight, norm.variance_epsilon, dtype)
        mlp = layer.mlp
        out = gated_mlp(normed, mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    _, states = add_norm(x, out, body.norm.weight, body.norm.variance_epsilon, torch.float32)
    return states


def _attend(block: Any, x: Tensor, cos: Tensor, sin: Tensor, hidden: Tensor | None) -> Tensor:
    config = block.config
    projections = (block.q_proj, block.k_proj, block.v_proj)
    weight = torch.cat([p.weight for p in projections]).to(x.dtype)
    bias = None if block.q_proj.bias is None else torch.cat([p.bias for p in projections]).to(x.dtype)
    heads = (config.num_attention_heads, config.num_key_value_heads)
    scales, epsilon = None, 0.0
    if config.model_type == "qwen3":
        each = (block.q_norm.weight.expand(heads[0], -1), block.k_norm.weight.expand(heads[1], -1))
        scales, epsilon = torch.cat(each), block.q_norm.variance_epsilon
    fused = functional.linear(x, weight, bias)
    q, k, v = split_heads(fused, scales, cos, sin, heads, block.scaling, epsilon)
    return causal_attention(q, k, v, hidden)


def _bias(linear: nn.Linear, dtype: torch.dtype) -> Tensor | None:
    return None if linear.bias is None else linear.bias.to(dtype)


def _linears(layer: Any) -> list[nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    return [*projections, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
