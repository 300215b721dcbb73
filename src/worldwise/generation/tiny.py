"""Random models of a few thousand parameters, for tests and for trying a set-up in seconds.

They know nothing; they have every part of the architecture they name (grouped keys, biases of Qwen2, query and
key norms of Qwen3), so code that is right on them is right on the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Architecture = Literal["llama", "qwen2", "qwen3", "gpt2"]

PAD, END = "<|pad|>", "<|end|>"
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
_MARKS = ("<next_state>", "</next_state>", "<think>", "</think>", "<action>", "</action>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerBase:
    """A byte-level tokenizer (one token a byte, 267 in all) with the special tokens and the chat form of the
    embedded model."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True) for token in (PAD, END, *_ROLES)])
    inner.add_tokens([AddedToken(token, special=False) for token in _MARKS])
    fast: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerBase = fast(tokenizer_object=inner, pad_token=PAD, eos_token=END)
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def tiny_model(
    architecture: Architecture = "qwen3",
    *,
    vocabulary: int = 267,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    max_positions: int = 512,
    tied: bool = True,
    spread: float = 0.3,
    seed: int = 0,
) -> PreTrainedModel:
    """A random float32 model in evaluation mode.

    Args:
        architecture: which family.
        vocabulary: tokens; 267 fits `tiny_tokenizer`.
        layers, hidden, heads, kv_heads: sizes; the feed-forward part is three times `hidden`. GPT-2 has no
            grouped keys and ignores `kv_heads`.
        max_positions: longest context.
        tied: the output head is the embedding.
        spread: standard deviation of the weights. The usual 0.02 gives all but uniform answers; this one
            gives peaked ones, on which errors show.
        seed: equal seeds give equal weights; the global random state stays as it was.
    """
    import torch
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    common: dict[str, Any] = {"vocab_size": vocabulary, "hidden_size": hidden, "tie_word_embeddings": tied}
    common |= {"initializer_range": spread, "max_position_embeddings": max_positions}
    common |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    grouped = common | {"intermediate_size": 3 * hidden, "num_hidden_layers": layers}
    grouped |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel
        if architecture == "llama":
            model = LlamaForCausalLM(LlamaConfig(**grouped))
        elif architecture == "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**grouped))
        elif architecture == "qwen3":
            model = Qwen3ForCausalLM(Qwen3Config(**grouped, head_dim=hidden // heads))
        else:
            model = GPT2LMHeadModel(GPT2Config(**common, n_layer=layers, n_head=heads))
        # Biases and norm weights start as constants, which would hide a part left out.
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, float(parameter.detach().mean()), 0.2)
    model.train(False)
    return model
