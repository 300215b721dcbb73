"""What the fast engine adds: variants of the architectures, shared storage, plans that hold for several steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from worldwise.generation.decoder import unsupported
from worldwise.generation.kv_cache import Layout, Span, _jobs, _sharers, sharing_order, split_at_sharers
from worldwise.generation.protocol import Completion, Request, Sampling
from worldwise.generation.tiny import tiny_model
from worldwise.generation.torch_engine import TorchEngine

CLOSE = 1e-5
Judge = Callable[[PreTrainedModel, Sequence[int], Completion, Sampling], float]
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "three queries a key": {"num_key_value_heads": 2},
    "one key head": {"num_key_value_heads": 1},
    "a key head each": {"num_key_value_heads": 6},
    "own head size": {"num_key_value_heads": 3, "head_dim": 16},
    "biases everywhere": {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True},
    "another base": {"num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 123.0}},
    "scaled positions": {"num_key_value_heads": 2, "rope_parameters": LLAMA3_ROPE},
}


def llama(**changes: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**(SIZES | changes)))
    model.train(False)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, float(parameter.detach().mean()), 0.2)
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_the_architecture_are_exact(variant: str, gap: Judge) -> None:
    model, rng = llama(**VARIANTS[variant]), random.Random(0)
    engine = TorchEngine(model, capacity=5, max_length=200)
    prompts = [[rng.randrange(97) for _ in range(length)] for length in (1, 17, 90, 90, 120)]
    requests = [Request(engine.open(), prompt, index) for index, prompt in enumerate(prompts)]
    sampling = Sampling(max_tokens=12)
    for prompt, completion in zip(prompts, engine.generate(requests, sampling, []), strict=True):
        assert gap(model, prompt, completion, sampling) < CLOSE


@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_chunks_of_a_long_prompt_are_exact(chunk: int, gap: Judge) -> None:
    model, rng = tiny_model("qwen3", spread=0.2), random.Random(1)
    engine = TorchEngine(model, capacity=3, max_length=100, chunk_tokens=chunk)
    prompts = [[rng.randrange(267) for _ in range(length)] for length in (33, 16, 5)]
    requests = [Request(engine.open(), prompt, index) for index, prompt in enumerate(prompts)]
    for prompt, completion in zip(prompts, engine.generate(requests, Sampling(max_tokens=4), []), strict=True):
        assert gap(model, prompt, completion, Sampling()) < CLOSE


def test_equal_prompts_and_forks_run_once() -> None:
    engine = TorchEngine(tiny_model(), capacity=9, max_length=100)
    prompt = list(range(40))
    slots = [engine.open() for _ in range(4)]
    engine.generate([Request(slot, prompt, slot, keep=False) for slot in slots], Sampling(max_tokens=1), [])
    assert engine.stats.prefix_tokens == 40
    assert engine.stats.extra["shared_tokens"] == 3 * 40
    engine.extend({slots[0]: prompt})
    assert engine.stats.prefix_tokens == 40 + 39
    forks = [engine.fork(slots[0]) for _ in range(4)]
    # the token that waited and the new ones: once for the parent, once for all forks
    requests = [Request(slot, [7] * 15, slot, keep=False) for slot in (slots[0], *forks)]
    engine.generate(requests, Sampling(max_tokens=1), [])
    assert engine.stats.prefix_tokens == 40 + 39 + 2 * 16
    # a few tokens are not worth a span of their own
    requests = [Request(slot, [7] * 14, slot, keep=False) for slot in (slots[0], *forks)]
    engine.generate(requests, Sampling(max_tokens=1), [])
    assert engine.stats.prefix_tokens == 40 + 39 + 2 * 16 + 5 * 15


def test_forced_tokens_run_with_the_next_free_one() -> None:
    from worldwise.generation.tries import build_trie

    engine = TorchEngine(tiny_model(), capacity=1, max_length=100)
    trie = build_trie([[1, 2, 3, 4, 10, 5], [1, 2, 3, 4, 11, 5]])
    engine.generate([Request(engine.open(), [9, 9], 1, allowed=trie)], Sampling(), [5])
    assert engine.stats.prefix_tokens == 6
    assert engine.stats.sampled_tokens == 6
    assert engine.stats.extra.get("decode_steps", 0) == 0


def test_half_precision_is_near(gap: Judge) -> None:
    model = tiny_model("qwen2", spread=0.05)
    engine = TorchEngine(model, capacity=2, max_length=64, dtype=torch.bfloat16)
    requests = [Request(engine.open(), [1, 2, 3, index], index) for index in range(2)]
    for request, completion in zip(requests, engine.generate(requests, Sampling(max_tokens=20), []), strict=True):
        difference = gap(model, request.new_ids, completion, Sampling())
        assert CLOSE < difference < 0.1


def test_broken_weights_leave_nothing_behind(gap: Judge) -> None:
    model = tiny_model("llama")
    good = {name: value.clone() for name, value in model.state_dict().items()}
    engine = TorchEngine(model, capacity=2, max_length=64)
    slot = engine.open()
    with torch.no_grad():
        model.get_submodule("model.layers.0.self_attn.k_proj").weight.fill_(torch.nan)  # type: ignore[operator]
    engine.refresh()
    with pytest.raises(FloatingPointError, match="NaN"):
        engine.generate([Request(slot, [1, 2, 3], 1)], Sampling(max_tokens=3), [])
    model.load_state_dict(good)
    engine.refresh()
    (completion,) = engine.generate([Request(slot, [1], 1)], Sampling(max_tokens=3), [])
    assert gap(model, [1], completion, Sampling()) < CLOSE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    model = llama(**changes)
    assert words in str(unsupported(model))
    with pytest.raises(ValueError, match=words):
        TorchEngine(model, 1, 64)


def test_sliding_windows_and_other_classes_are_refused() -> None:
    sliding = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert "sliding" in str(unsupported(Qwen2ForCausalLM(sliding)))
    assert "GPT2" in str(unsupported(tiny_model("gpt2")))


def test_neighbours_of_like_length_are_read_together() -> None:
    def alone(row: int, stop: int) -> Layout:
        return Layout((), Span(row, 0, stop))

    # rows 0-2 are alike, row 3 is far longer, row 5 is no neighbour of row 3
    jobs, ends = _jobs([alone(0, 50), alone(1, 60), alone(2, 70), alone(3, 900), alone(5, 900)], 1000)
    assert [(job.first, job.last, job.row, job.rows, job.stop) for job in jobs] == [
        (0, 3, 0, 3, 80),
        (3, 4, 3, 1, 912),
        (4, 5, 5, 1, 912),
    ]
    assert ends == [80, 80, 80, 912, 912]


def test_a_shared_span_is_read_once_for_all_its_sharers_and_its_owner() -> None:
    span = Span(4, 0, 100)
    layouts = [
        Layout((span,), Span(6, 100, 120)),
        Layout((), Span(4, 0, 130)),
        Layout((), Span(2, 0, 40)),
        Layout((span,), Span(7, 100, 110)),
    ]
    ordered = split_at_sharers(sorted(layouts, key=sharing_order))
    assert [layout.own.row for layout in ordered] == [2, 6, 7, 4]
    jobs, _ = _jobs(ordered, 1000)
    shared = [job for job in jobs if job.row == 4 and job.start == 0]
    assert [(job.first, job.last, job.rows, job.stop) for job in shared] == [(1, 4, 1, 100)]
    assert sorted((job.row, job.start) for job in jobs) == [(2, 0), (4, 0), (4, 100), (6, 100)]


def test_forks_with_short_parts_of_their_own_are_prefilled_together() -> None:
    span, other = Span(0, 0, 10), Span(1, 0, 10)
    forks = [Layout((span,), Span(row, 10, 10 + own)) for row, own in ((2, 4), (3, 5), (4, 2))]
    layouts = [*forks, Layout((other,), Span(5, 10, 12)), Layout((), Span(6, 0, 9)), Layout((), Span(7, 0, 9))]
    # 4 + 5 own positions fit into 10 shared ones, 4 + 5 + 2 do not
    assert [_sharers(layouts, first) for first in range(6)] == [2, 3, 3, 4, 5, 6]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_forks_prefilled_together_do_not_see_each_other(architecture: Any, gap: Judge) -> None:
    model, rng = tiny_model(architecture, spread=0.2), random.Random(2)
    engine, stem = TorchEngine(model, capacity=9, max_length=150), 0
    assert engine.open() == stem
    prompt = [rng.randrange(267) for _ in range(60)]
    engine.extend({stem: prompt})
    asked = [[rng.randrange(267) for _ in range(rng.randint(1, 12))] for _ in range(8)]
    requests = [Request(engine.fork(stem), new, index) for index, new in enumerate(asked)]
    completions = engine.generate(requests, Sampling(max_tokens=6), [])
    gaps = [gap(model, prompt + new, done, Sampling()) for new, done in zip(asked, completions, strict=True)]
    assert max(gaps) < CLOSE
