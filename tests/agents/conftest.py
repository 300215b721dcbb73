"""Small tokenizers trained in place, and a world that only has a name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from worldwise.stages.base_model.tokenizer import train_tokenizer

from ..worldless import WorldlessFamily

SENTENCES = [
    "You are in the middle of a room. You see a drawer 1, and a shelf 2.\n\nYour task is to: put a mug in drawer.",
    "You arrive at drawer 1. The drawer 1 is closed.",
    "You open the drawer 1. In it, you see nothing.",
    "go to drawer 1",
    "open drawer 1",
    "take mug 1 from shelf 2",
    "predict the next message <next_state> </next_state> <think> </think> <action> </action>",
]

CHATML = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helper.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As SmolLM2's and Qwen2.5's templates: a line break behind every end token, a default system message."""

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class NamedFamily(WorldlessFamily):
    """Enough of a world for prompts: a name, and where the task stands in a text."""

    name = "household"

    def task_text(self, observation: str) -> str:
        return observation.partition("Your task is to: ")[2]


@pytest.fixture
def family() -> NamedFamily:
    return NamedFamily()


@pytest.fixture(scope="session")
def own_tokenizer() -> PreTrainedTokenizerFast:
    """The embedded model's kind of tokenizer, with its chat template."""
    plain = [sentence for sentence in SENTENCES if "<" not in sentence]
    return train_tokenizer(plain, vocab_size=400, max_length=1024)


@pytest.fixture(scope="session")
def with_template() -> Callable[[str], PreTrainedTokenizerFast]:
    """Makes a tokenizer with ChatML's special tokens and the given template."""

    def make(template: str) -> PreTrainedTokenizerFast:
        tokens = Tokenizer(models.BPE())
        tokens.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokens.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokens.train_from_iterator(SENTENCES, trainer=trainer)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokens,
            eos_token="<|endoftext|>",
            pad_token="<|endoftext|>",
            clean_up_tokenization_spaces=False,
        )
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def chatml_tokenizer(with_template: Callable[[str], PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    """ChatML, whose end token is not the end-of-sequence token."""
    return with_template(CHATML)
