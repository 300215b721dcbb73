"""Tokenizers of five model families, small enough to be built in place, with chat templates of their documented
formats (`chat_templates/`, written here, not the vendors' files).

Each has its family's pre-tokeniser, special tokens and decoder. The vocabulary is bytes (or letters) plus every
beginning of the words of `WORDS`; nothing is trained, so the ids depend on no library's version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parent / "chat_templates"

WORDS = """
You play a text game. Every message tells you what you see. Reach the goal that the first message names.
Answer every message with one command and nothing else. Write nothing after it. between
You are in a room. You see a drawer 1. The drawer 1 is closed. You open it. In it is a mug. Nothing happens.
Your task is to: put a mug in drawer. I should look: open drawer 1, take mug, go to drawer 1
You have taken steps. Seen Now think action helper small INST
"""
ROLES = ["system", "user", "assistant"]

GPT2_SPLIT = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}", r"|\p{N}{1,3}")


@dataclass(frozen=True)
class Family:
    """What tells one family's tokenizer from another's.

    Attributes:
        template: file under `chat_templates`, without its ending.
        special: special tokens.
        end: the end of an assistant message.
        eos: the end of a sequence; generation stops there, too.
        split: the pre-tokeniser's expression. Two names stand for SentencePiece's way, in which a blank is a
            letter: `prepend` puts one in front of every stretch of text between special tokens (Llama 2, the
            first Mistrals), `first` only in front of a text that begins with none (the later ones).
        single_digits: digits are cut out first, one by one.
        tags: added tokens that are not special.
        end_takes_blanks: the end token swallows the blanks behind it (Phi-3's does).
    """

    template: str
    special: tuple[str, ...]
    end: str
    eos: str
    split: str
    single_digits: bool = False
    tags: tuple[str, ...] = ()
    end_takes_blanks: bool = False


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL = ("<unk>", "<s>", "</s>")

FAMILIES = {
    "qwen2.5": Family("qwen2.5", _CHATML, "<|im_end|>", "<|im_end|>", QWEN_SPLIT),
    "qwen3": Family("qwen3", _CHATML, "<|im_end|>", "<|im_end|>", QWEN_SPLIT, tags=("<think>", "</think>")),
    "llama-3": Family("llama-3", _LLAMA, "<|eot_id|>", "<|end_of_text|>", LLAMA_SPLIT),
    "smollm2": Family("smollm2", _CHATML, "<|im_end|>", "<|im_end|>", GPT2_SPLIT, single_digits=True),
    # Up to version 0.2 of Mistral, [INST] was plain text; from 0.3 on, a special token.
    "mistral": Family("mistral", _MISTRAL, "</s>", "</s>", "prepend"),
    "mistral-v3": Family("mistral", (*_MISTRAL, "[INST]", "[/INST]"), "</s>", "</s>", "first"),
}


@cache
def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a family, with its chat template."""
    family = FAMILIES[name]
    return build(family, (TEMPLATES / f"{family.template}.jinja").read_text())


def build(family: Family, template: str) -> PreTrainedTokenizerFast:
    """A tokenizer with a chat template."""
    if family.split in ("prepend", "first"):
        tokens = _sentencepiece(family.split)
    else:
        tokens = _byte_level(family.split, family.single_digits)
    greedy = family.end if family.end_takes_blanks else ""
    tokens.add_special_tokens(
        [AddedToken(text, special=True, normalized=False, rstrip=text == greedy) for text in family.special]
    )
    tokens.add_tokens([AddedToken(text, special=False, normalized=False) for text in family.tags])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        eos_token=family.eos,
        pad_token=family.eos,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer


def pieces(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> list[str]:
    """Each token's own text, a leading blank included."""
    names = [str(tokenizer.backend_tokenizer.id_to_token(token)) for token in ids]
    return [
        name.replace("\u2581", " ") if "\u2581" in name else str(tokenizer.decode([token]))
        for name, token in zip(names, ids, strict=True)
    ]


def _byte_level(split: str, single_digits: bool) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    blank, line = "\u0120", "\u010a"
    more = [line + line, "." + line, "." + line + line]
    tokens = _bpe(alphabet, blank, more)
    cut: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(split), behavior="isolated")]
    if single_digits:
        cut.insert(0, pre_tokenizers.Digits(individual_digits=True))
    cut.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokens.pre_tokenizer = pre_tokenizers.Sequence(cut)
    tokens.decoder = decoders.ByteLevel()
    return tokens


def _sentencepiece(blanks: str) -> Tokenizer:
    letters = [chr(code) for code in range(0x21, 0x7F)]
    blank = "\u2581"
    tokens = _bpe([f"<0x{byte:02X}>" for byte in range(256)] + letters + [blank], blank, [], byte_fallback=True)
    if blanks == "prepend":
        tokens.normalizer = normalizers.Sequence([normalizers.Prepend(blank), normalizers.Replace(" ", blank)])
    else:
        tokens.pre_tokenizer = pre_tokenizers.Metaspace(blank, prepend_scheme="first", split=False)
    tokens.decoder = decoders.Sequence(
        [decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokens


def _bpe(alphabet: list[str], blank: str, more: list[str], byte_fallback: bool = False) -> Tokenizer:
    """Merges that build every word letter by letter from its left end; words behind a blank first, then the roles."""
    words = sorted(set(re.findall(r"[A-Za-z_]+", WORDS)))
    chains = [*(blank + word for word in words), *ROLES, *words, *more]
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for chain in chains:
        for length in range(2, len(chain) + 1):
            if chain[:length] not in vocabulary:
                vocabulary[chain[:length]] = len(vocabulary)
                merges.append((chain[: length - 1], chain[length - 1]))
    return Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=byte_fallback))
