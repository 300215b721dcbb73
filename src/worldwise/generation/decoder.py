"""The forward pass of Llama, Qwen2 and Qwen3 models over packed tokens, from the model's own parameters.

Same mathematics as transformers' `modeling_llama`, `modeling_qwen2` and `modeling_qwen3`; what differs is the
order of memory: projections of one input are one matrix, the weight of a norm and the scale of the scores are
multiplied into the matrix behind them, rotated pairs lie together, and tokens of all contexts are packed
without padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from worldwise.generation.effective import effective_weight, is_adapted
from worldwise.generation.kv_cache import KVCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_FIXED_ROPE = ("default", "linear", "llama3", "yarn")


class Plan(Protocol):
    """Attention over the cache, in its type or that of the queries; see `kv_cache`."""

    def attend(self, layer: int, queries: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class _Layer:
    """One block. Matrices are [in, out]."""

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    qk_norm: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


def unsupported(model: PreTrainedModel) -> str | None:
    """Why this forward pass cannot stand for the model's own; None if it can."""
    config: Any = model.config
    if type(model).__name__ not in _CLASSES:
        return f"its class is {type(model).__name__}, not one of {', '.join(_CLASSES)}"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    rope = config.rope_parameters["rope_type"]
    if rope not in _FIXED_ROPE:
        return f"its rotary embedding is {rope}, whose frequencies change with the length"
    if any(kind != "full_attention" for kind in config.to_dict().get("layer_types") or ()):
        return "it has sliding-window attention"
    for name, module in model.named_modules():
        if name.endswith("_proj") and type(module) is not torch.nn.Linear and not is_adapted(module):
            return f"its layer {name} is of type {type(module).__name__}, neither linear nor linear with plain LoRA"
    return None


class Decoder:
    """A causal language model over packed tokens.

    Matrices are copies (in `dtype`), taken from the model at construction and at each `refresh`, with LoRA
    adapters folded in; the embedding is the model's own tensor where the types agree.
    """

    def __init__(self, model: PreTrainedModel, max_length: int, dtype: torch.dtype) -> None:
        """Takes the weights.

        Args:
            model: read, never changed.
            max_length: longest context; at most the model's own limit.
            dtype: of weights and activations. float32 answers as the model itself does.

        Raises:
            ValueError: an architecture that `unsupported` refuses, or a longer context than the model knows.
        """
        reason = unsupported(model)
        if reason is not None:
            raise ValueError(f"TorchEngine cannot run this model: {reason}; make_engine falls back to HFEngine")
        config: Any = model.config
        if max_length > config.max_position_embeddings:
            raise ValueError(
                f"max_length {max_length} exceeds the model's {config.max_position_embeddings} positions "
                f"(max_position_embeddings): lower it"
            )
        self._model: Any = model
        self.dtype = dtype
        self.device = model.device
        self.vocabulary = int(config.vocab_size)
        self.layers = int(config.num_hidden_layers)
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        self._epsilon = float(config.rms_norm_eps)
        self.head_dim = int(model.get_submodule("model.layers.0.self_attn").head_dim)  # type: ignore[arg-type]
        self._rope = _rope_table(self._model.model.rotary_emb, max_length)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes the model's present weights."""
        self._embedding = self._model.get_input_embeddings().weight.detach().to(self.dtype)
        self._norm = self._model.model.norm.weight.detach().to(self.dtype)
        self._head = self._model.get_output_embeddings().weight.detach().to(self.dtype).t().contiguous()
        self._blocks = [self._take(block) for block in self._model.model.layers]
        # An adapter that came or went is another set of parameters.
        self._parameters = list(self._model.parameters())
        self._version = self._present_version()

    @property
    def stale(self) -> bool:
        """The model's parameters were written to since the weights were taken."""
        return self._present_version() != self._version

    def _present_version(self) -> int:
        # torch counts in-place writes to each tensor, and every optimizer step is one.
        return sum(parameter._version for parameter in self._parameters)

    def _take(self, block: Any) -> _Layer:
        attention, mlp = block.self_attn, block.mlp
        queries = self.heads * self.head_dim
        scale = self.head_dim**-0.5
        qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj) * block.input_layernorm.weight
        qkv_bias = _joined_bias(attention.q_proj, attention.k_proj, attention.v_proj)
        qk_norm = None
        if type(attention).__name__ == "Qwen3Attention":
            q_norm = attention.q_norm.weight * scale
            q_norm, k_norm = q_norm.expand(self.heads, -1), attention.k_norm.weight.expand(self.kv_heads, -1)
            pairs = _pair_order(1, self.head_dim).to(self.device)
            qk_norm = torch.cat((q_norm, k_norm))[:, pairs].to(self.dtype)
        else:
            qkv[:queries] *= scale
            if qkv_bias is not None:
                qkv_bias[:queries] *= scale
        turned = (self.heads + self.kv_heads) * self.head_dim
        order = _pair_order(self.heads + self.kv_heads, self.head_dim).to(self.device)
        qkv[:turned] = qkv[:turned][order]
        if qkv_bias is not None:
            qkv_bias[:turned] = qkv_bias[:turned][order]
        gate_up = _joined(mlp.gate_proj, mlp.up_proj) * block.post_attention_layernorm.weight
        return _Layer(
            qkv=self._matrix(qkv),
            qkv_bias=self._vector(qkv_bias),
            qk_norm=qk_norm,
            out=self._matrix(effective_weight(attention.o_proj)),
            out_bias=self._vector(attention.o_proj.bias),
            gate_up=self._matrix(gate_up),
            gate_up_bias=self._vector(_joined_bias(mlp.gate_proj, mlp.up_proj)),
            down=self._matrix(effective_weight(mlp.down_proj)),
            down_bias=self._vector(mlp.down_proj.bias),
        )

    def _matrix(self, weight: torch.Tensor) -> torch.Tensor:
        # [in, out] and contiguous: up to twice as fast as [out, in] on a CPU for a few rows.
        return weight.detach().t().to(self.dtype, memory_format=torch.contiguous_format).contiguous()

    def _vector(self, bias: torch.Tensor | None) -> torch.Tensor | None:
        return None if bias is None else bias.detach().to(self.dtype).clone()

    def forward(
        self, ids: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, cache: KVCache, plan: Plan
    ) -> torch.Tensor:
        """Runs tokens and stores their keys and values.

        Args:
            ids, rows, positions: int64 [N]; token, cache row and position of each.
            cache: written to at (rows, positions).
            plan: attends for these tokens.

        Returns:
            The last hidden states [N, hidden], before the final norm.
        """
        hidden = torch.nn.functional.embedding(ids, self._embedding)
        turns = self._rope[positions].unsqueeze(1)
        turned = self.heads + self.kv_heads
        for index, layer in enumerate(self._blocks):
            projected = _linear(self._normed(hidden), layer.qkv, layer.qkv_bias)
            projected = projected.view(ids.shape[0], turned + self.kv_heads, self.head_dim)
            qk, values = projected[:, :turned], projected[:, turned:]
            if layer.qk_norm is not None:
                qk = self._normed(qk) * layer.qk_norm
            pairs = torch.view_as_complex(qk.float().view(*qk.shape[:2], -1, 2))
            qk = torch.view_as_real(pairs * turns).flatten(-2)
            cache.write(index, rows, positions, qk[:, self.heads :].to(cache.dtype), values.to(cache.dtype))
            attended = plan.attend(index, qk[:, : self.heads].to(self.dtype)).to(self.dtype)
            _add_linear(hidden, attended, layer.out, layer.out_bias)
            projected = _linear(self._normed(hidden), layer.gate_up, layer.gate_up_bias)
            gate, up = projected.chunk(2, dim=-1)
            mixed = torch.nn.functional.silu(gate).mul_(up)
            _add_linear(hidden, mixed, layer.down, layer.down_bias)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits, float32 [B, vocabulary], of last hidden states [B, hidden]."""
        return _linear(self._normed(hidden) * self._norm, self._head, None).float()

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        """Root-mean-square normalised, without a weight; computed in float32."""
        norm: torch.Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = norm.square_().mul_(1.0 / x.shape[-1]).add_(self._epsilon).rsqrt_()
        return (x * scale).to(x.dtype)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [N, in] times weight [in, out] plus bias.

    A single row is run twice: as a matrix product it is summed in the same order as in a larger batch, as a
    vector product it would not be, and a response would depend (in the last bit) on its batch mates.
    """
    if x.shape[0] == 1:
        return _linear(x.repeat(2, 1), weight, bias)[:1]
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


def _add_linear(hidden: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Adds `_linear` to hidden [N, out] in place."""
    if x.shape[0] == 1:
        hidden.add_(_linear(x, weight, bias))
        return
    hidden.addmm_(x, weight)
    if bias is not None:
        hidden.add_(bias)


def _joined(*projections: Any) -> torch.Tensor:
    return torch.cat([effective_weight(projection).detach().float() for projection in projections])


def _joined_bias(*projections: Any) -> torch.Tensor | None:
    if projections[0].bias is None:
        return None
    return torch.cat([projection.bias.detach().float() for projection in projections])


def _pair_order(heads: int, head_dim: int) -> torch.Tensor:
    """Where each row of a query or key projection goes so that rotated pairs (i, i + head_dim / 2) lie together.

    Scores do not change, queries and keys being reordered alike, and a rotation becomes one complex product.
    """
    head = torch.arange(head_dim).view(2, -1).t().flatten()
    return (torch.arange(heads)[:, None] * head_dim + head).flatten()


def _rope_table(rotary: Any, max_length: int) -> torch.Tensor:
    """The rotation of every position and pair, complex64 [max_length, head_dim / 2], from the model's own
    frequencies: the pairs of `apply_rotary_pos_emb` times cos + i sin."""
    frequencies = rotary.inv_freq.float()
    positions = torch.arange(max_length, device=frequencies.device, dtype=torch.float32)
    angles = positions[:, None] * frequencies[None]
    scaling = float(rotary.attention_scaling)
    return torch.complex(angles.cos() * scaling, angles.sin() * scaling)
