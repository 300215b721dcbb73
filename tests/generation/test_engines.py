"""Every engine on every architecture: probabilities of the model itself, contexts that last, equal answers alone
and in company."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from worldwise.generation.engines import make_engine
from worldwise.generation.hf_engine import HFEngine
from worldwise.generation.models import ModelConfig, load_model, load_tokenizer, resolve_model
from worldwise.generation.protocol import Completion, Engine, Request, Sampling
from worldwise.generation.tiny import Architecture, tiny_model, tiny_tokenizer
from worldwise.generation.torch_engine import TorchEngine
from worldwise.generation.tries import build_trie

VOCABULARY = 267
STOPS = (5, 6, 7, 8)
CLOSE = 1e-5
Judge = Callable[[PreTrainedModel, Sequence[int], Completion, Sampling], float]
Build = Callable[..., Engine]

ARCHITECTURES: tuple[Architecture, ...] = ("llama", "qwen2", "qwen3", "gpt2")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param, tied=request.param != "qwen2", spread=0.2)


@pytest.fixture(scope="module")
def build(model: PreTrainedModel) -> Build:
    return lambda capacity=8, max_length=160: make_engine(model, tiny_tokenizer(), capacity, max_length)


def ids(rng: random.Random, low: int, high: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(low, high))]


def same(first: Completion, second: Completion) -> bool:
    return (
        first.token_ids.tolist() == second.token_ids.tolist()
        and bool(np.allclose(first.logprobs, second.logprobs, atol=CLOSE, rtol=0))
        and bool(np.allclose(first.entropies, second.entropies, atol=CLOSE, rtol=0))
        and first.finish == second.finish
    )


def test_the_fast_engine_serves_what_it_knows(build: Build, model: PreTrainedModel) -> None:
    expected = HFEngine if model.config.model_type == "gpt2" else TorchEngine
    assert type(build()) is expected


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_probabilities_are_the_models_own_over_ragged_turns(
    build: Build, model: PreTrainedModel, gap: Judge, slots: int, temperature: float
) -> None:
    engine, rng = build(), random.Random(slots)
    sampling = Sampling(temperature=temperature, max_tokens=6)
    history: dict[int, list[int]] = {engine.open(): [] for _ in range(slots)}
    worst, finishes = 0.0, set()
    for turn in range(5):
        chosen = [slot for slot in history if turn == 0 or rng.random() < 0.7]
        requests = [Request(slot, ids(rng, 1, 12), rng.getrandbits(63), rng.random() < 0.7) for slot in chosen]
        for request, completion in zip(requests, engine.generate(requests, sampling, STOPS), strict=True):
            prompt = history[request.slot] + list(request.new_ids)
            worst = max(worst, gap(model, prompt, completion, sampling))
            finishes.add(completion.finish)
            if request.keep:
                history[request.slot] = prompt + completion.token_ids.tolist()
            assert engine.length(request.slot) == len(history[request.slot])
    assert worst < CLOSE
    assert finishes <= {"stop", "length"}


def test_long_answers_stay_exact(build: Build, model: PreTrainedModel, gap: Judge) -> None:
    # more tokens than a decode plan holds for, contexts of unlike length
    engine, rng = build(4, 160), random.Random(1)
    requests = [Request(engine.open(), ids(rng, low, low), low) for low in (1, 3, 40, 41)]
    completions = engine.generate(requests, Sampling(max_tokens=80), [])
    assert [len(completion.token_ids) for completion in completions] == [80] * 4
    gaps = [gap(model, list(r.new_ids), c, Sampling()) for r, c in zip(requests, completions, strict=True)]
    assert max(gaps) < CLOSE


def test_company_changes_nothing(build: Build) -> None:
    rng = random.Random(3)
    turns = [[ids(rng, 1, 30) for _ in range(6)] for _ in range(3)]
    seeds = [[rng.getrandbits(63) for _ in range(6)] for _ in range(3)]
    sampling = Sampling(max_tokens=9)
    together, alone = build(), build()
    crowd, lone = [together.open() for _ in range(6)], [alone.open() for _ in range(6)]
    for turn in range(3):
        order = list(range(6))
        rng.shuffle(order)
        batch = [Request(crowd[i], turns[turn][i], seeds[turn][i]) for i in order]
        answers = dict(zip(order, together.generate(batch, sampling, STOPS), strict=True))
        for i in range(6):
            (single,) = alone.generate([Request(lone[i], turns[turn][i], seeds[turn][i])], sampling, STOPS)
            assert same(single, answers[i])


def test_forks_continue_their_own_way(build: Build, model: PreTrainedModel, gap: Judge) -> None:
    engine, rng, sampling = build(), random.Random(4), Sampling(max_tokens=5)
    root = engine.open()
    prompt = ids(rng, 20, 20)
    (first,) = engine.generate([Request(root, prompt, 1)], sampling, STOPS)
    history = {root: prompt + first.token_ids.tolist()}
    for _ in range(3):
        parent = rng.choice(list(history))
        history[engine.fork(parent)] = list(history[parent])
        requests = [Request(slot, ids(rng, 1, 6), rng.getrandbits(63), rng.random() < 0.6) for slot in history]
        for request, completion in zip(requests, engine.generate(requests, sampling, STOPS), strict=True):
            context = history[request.slot] + list(request.new_ids)
            assert gap(model, context, completion, sampling) < CLOSE
            if request.keep:
                history[request.slot] = context + completion.token_ids.tolist()
    assert {slot: engine.length(slot) for slot in history} == {slot: len(own) for slot, own in history.items()}


@pytest.mark.parametrize("end", ["close", "clear", "refill"])
def test_forks_outlive_their_parent(build: Build, model: PreTrainedModel, gap: Judge, end: str) -> None:
    engine, rng, sampling = build(3), random.Random(5), Sampling(max_tokens=5)
    parent = engine.open()
    prompt = ids(rng, 30, 30)
    engine.extend({parent: prompt})
    children = [engine.fork(parent), engine.fork(parent)]
    if end == "close":
        engine.close(parent)
        assert engine.open() == parent
    else:
        engine.clear(parent)
    requests = [Request(child, [9], child) for child in children]
    if end == "refill":
        requests.append(Request(parent, ids(rng, 50, 50), 99))
    completions = engine.generate(requests, sampling, STOPS)
    assert max(gap(model, [*prompt, 9], completion, sampling) for completion in completions[:2]) < CLOSE


def test_extending_is_the_same_as_asking_with_all_tokens(build: Build) -> None:
    engine, prompt, sampling = build(), ids(random.Random(6), 40, 40), Sampling(max_tokens=8)
    first, second, third = engine.open(), engine.open(), engine.open()
    (whole,) = engine.generate([Request(first, prompt, 5)], sampling, STOPS)
    engine.extend({second: prompt[:15], third: prompt[:1]})
    assert engine.length(second) == 15
    engine.extend({second: prompt[15:], third: prompt[1:]})
    pair = engine.generate([Request(second, [], 5), Request(third, [], 5)], sampling, STOPS)
    assert same(pair[0], whole)
    assert same(pair[1], whole)
    assert engine.length(second) == engine.length(first)


def test_a_look_ahead_leaves_no_trace(build: Build) -> None:
    rng, sampling = random.Random(7), Sampling(max_tokens=6)
    looking, plain = build(), build()
    for turn in range(3):
        new, peek = ids(rng, 2, 9), ids(rng, 1, 5)
        answers = []
        for engine in (looking, plain):
            slot = engine.open() if turn == 0 else 0
            if engine is looking and turn > 0:
                before = engine.length(slot)
                engine.generate([Request(slot, peek, 77 + turn, keep=False)], sampling, STOPS)
                assert engine.length(slot) == before
            answers += engine.generate([Request(slot, new, turn)], sampling, STOPS)
        assert same(*answers)


def test_equal_prompts_get_equal_treatment_and_own_seeds(build: Build, model: PreTrainedModel, gap: Judge) -> None:
    engine, prompt, sampling = build(), ids(random.Random(8), 25, 25), Sampling(max_tokens=12)
    slots = [engine.open() for _ in range(6)]
    # three seeds, each once kept and once not; kept ones go on, and the ones they shared with go away
    requests = [Request(slot, prompt, slot % 3, keep=slot < 3) for slot in slots]
    completions = engine.generate(requests, sampling, STOPS)
    assert all(same(completions[i], completions[i + 3]) for i in range(3))
    assert len({tuple(completion.token_ids.tolist()) for completion in completions}) == 3
    history = {slot: prompt + completions[slot].token_ids.tolist() if slot < 3 else [] for slot in slots}
    assert {slot: engine.length(slot) for slot in slots} == {slot: len(own) for slot, own in history.items()}
    engine.close(0)
    more = [Request(slot, [11, 12, 13], 50 + slot) for slot in slots[1:]]
    for request, completion in zip(more, engine.generate(more, sampling, STOPS), strict=True):
        assert gap(model, [*history[request.slot], *request.new_ids], completion, sampling) < CLOSE


def test_every_stop_token_stops_and_is_kept(build: Build) -> None:
    engine = build()
    slot = engine.open()
    (free,) = engine.generate([Request(slot, [1, 2, 3], 9, keep=False)], Sampling(max_tokens=12), [])
    stop = int(free.token_ids[5])
    first = free.token_ids.tolist().index(stop) + 1
    (stopped,) = engine.generate([Request(slot, [1, 2, 3], 9)], Sampling(max_tokens=12), [VOCABULARY, stop])
    assert stopped.token_ids.tolist() == free.token_ids.tolist()[:first]
    assert stopped.finish == "stop"
    assert engine.length(slot) == 3 + first


def test_a_slot_fills_up_and_says_so(build: Build) -> None:
    engine = build(2, 20)
    slot = engine.open()
    (completion,) = engine.generate([Request(slot, [3] * 12, 1)], Sampling(max_tokens=30), [])
    assert (completion.finish, len(completion.token_ids), engine.length(slot)) == ("context", 8, 20)
    (nothing,) = engine.generate([Request(slot, [], 2)], Sampling(), [])
    assert (nothing.finish, len(nothing.token_ids), engine.length(slot)) == ("context", 0, 20)
    other = engine.open()
    (nothing,) = engine.generate([Request(other, [3] * 25, 1)], Sampling(), [])
    assert (nothing.finish, engine.length(other)) == ("context", 0)
    with pytest.raises(ValueError, match="max_length is 20"):
        engine.extend({other: [3] * 21})


def test_restricted_answers_are_whole_commands_with_their_own_distribution(
    build: Build, model: PreTrainedModel
) -> None:
    commands = [[20, 30, 40, 5], [20, 30, 41, 42, 5], [20, 31, 5], [21, 5]]
    trie, engine, prompt = build_trie(commands), build(), [1, 2, 3, 4]
    slots = [engine.open() for _ in range(8)]
    requests = [Request(slot, prompt, 100 + slot, allowed=trie if slot else None) for slot in slots]
    completions = engine.generate(requests, Sampling(temperature=5.0, max_tokens=8), STOPS)
    drawn = set()
    for completion in completions[1:]:
        tokens = completion.token_ids.tolist()
        assert tokens in commands
        assert completion.finish == "stop"
        drawn.add(tuple(tokens))
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0, 3:-1].double() / 5.0
        node = 0
        for step, token in enumerate(tokens):
            allowed = sorted(trie.children[node])
            expected = logits[step, allowed].log_softmax(-1)
            assert completion.logprobs[step] == pytest.approx(float(expected[allowed.index(token)]), abs=CLOSE)
            spread = float(torch.special.entr(expected.exp()).sum())
            assert completion.entropies[step] == pytest.approx(spread, abs=CLOSE)
            node = trie.children[node][token]
    assert len(drawn) > 1
    # the slot goes on from the command, forced tokens included
    follow = engine.generate([Request(slots[1], [9], 1)], Sampling(max_tokens=3), [])
    fresh = build()
    context = prompt + completions[1].token_ids.tolist() + [9]
    assert same(follow[0], fresh.generate([Request(fresh.open(), context, 1)], Sampling(max_tokens=3), [])[0])


def test_a_single_allowed_command_needs_no_draw(build: Build) -> None:
    engine = build()
    slot = engine.open()
    request = Request(slot, [1, 2], 3, allowed=build_trie([[20, 30, 5]]))
    (completion,) = engine.generate([request], Sampling(), STOPS)
    assert completion.token_ids.tolist() == [20, 30, 5]
    assert completion.logprobs.tolist() == [0.0, 0.0, 0.0]
    assert engine.length(slot) == 5


def test_greedy_takes_the_most_probable(build: Build, model: PreTrainedModel) -> None:
    engine = build()
    (completion,) = engine.generate([Request(engine.open(), [4, 5, 6], 1)], Sampling(temperature=0.0, max_tokens=5), [])
    context = [4, 5, 6]
    with torch.no_grad():
        for _ in range(5):
            context.append(int(model(torch.tensor([context])).logits[0, -1].argmax()))
    assert completion.token_ids.tolist() == context[3:]
    assert completion.logprobs.tolist() == [0.0] * 5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_changed_weights_are_noticed_and_taken(architecture: Architecture, gap: Judge) -> None:
    own = tiny_model(architecture, seed=1, spread=0.2)
    engine = make_engine(own, tiny_tokenizer(), 2, 64)
    slot = engine.open()
    engine.generate([Request(slot, [1, 2], 1)], Sampling(max_tokens=3), [])
    optimizer = torch.optim.AdamW(own.parameters(), lr=0.05)
    own(torch.tensor([[1, 2, 3]])).logits.square().mean().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="refresh"):
        engine.generate([Request(slot, [1], 1)], Sampling(), [])
    with pytest.raises(RuntimeError, match="refresh"):
        engine.extend({slot: [1]})
    engine.refresh()
    assert engine.length(slot) == 0
    (completion,) = engine.generate([Request(slot, [1, 2, 3], 1)], Sampling(max_tokens=20), [])
    assert gap(own, [1, 2, 3], completion, Sampling()) < CLOSE


def test_slots_are_lent_and_given_back(build: Build) -> None:
    engine = build(2)
    first, second = engine.open(), engine.open()
    assert {first, second} == {0, 1}
    with pytest.raises(RuntimeError, match="all 2 slots are open"):
        engine.open()
    with pytest.raises(RuntimeError, match="all 2 slots are open"):
        engine.fork(first)
    engine.close(first)
    assert engine.fork(second) == first
    assert (engine.capacity, engine.max_length) == (2, 160)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([Request(1, [1], 1)], "slot 1 is not open"),
        ([Request(0, [1], 1), Request(0, [2], 1)], "two requests"),
        ([Request(0, [VOCABULARY], 1)], "outside"),
        ([Request(0, [-1], 1)], "outside"),
        ([Request(0, [], 1)], "nothing to continue"),
    ],
)
def test_wrong_requests_are_refused_and_change_nothing(build: Build, requests: list[Request], words: str) -> None:
    engine = build()
    slot = engine.open()
    with pytest.raises(ValueError, match=words):
        engine.generate(requests, Sampling(), STOPS)
    assert engine.length(slot) == 0
    assert engine.stats.sampled_tokens == 0


def test_counters_count(build: Build) -> None:
    engine = build()
    slot = engine.open()
    (completion,) = engine.generate([Request(slot, [1, 2, 3], 1)], Sampling(max_tokens=4), [])
    assert engine.stats.sampled_tokens == len(completion.token_ids) == 4
    assert engine.stats.prefix_tokens >= 3
    assert engine.stats.seconds > 0


def test_sizes_are_checked(model: PreTrainedModel) -> None:
    for wrong in ({"capacity": 0, "max_length": 9}, {"capacity": 1, "max_length": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            make_engine(model, tiny_tokenizer(), **wrong)
    with pytest.raises(ValueError, match="512 positions"):
        make_engine(model, tiny_tokenizer(), 1, 513)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        make_engine(tiny_model(vocabulary=100), tiny_tokenizer(), 1, 10)


def test_the_embedded_model_plays_with_its_own_probabilities(gap: Judge) -> None:
    folder = resolve_model(ModelConfig())
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    engine = make_engine(model, tokenizer, 4, 256)
    assert type(engine) is TorchEngine
    text = "You are in the middle of a room. You see a desk 1, and a drawer 1. Your task is to: put a mug in desk."
    chat = [{"role": "user", "content": text}]
    prompt = tokenizer.encode(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    requests = [Request(engine.open(), prompt, seed) for seed in range(4)]
    for completion in engine.generate(requests, Sampling(max_tokens=16), [tokenizer.eos_token_id]):
        assert gap(model, prompt, completion, Sampling()) < CLOSE
