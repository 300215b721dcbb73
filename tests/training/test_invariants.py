"""Configurations that must agree, on a model of a million parameters: how a step is cut never changes it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.episodes.sequences import TrainingSequence, sequences_from_episode
from worldwise.training import batching
from worldwise.training.adapter_config import AdapterConfig
from worldwise.training.batching import make_row, plan_micro_batches
from worldwise.training.learner import Learner, LearnerConfig
from worldwise.training.minibatch import responses

from .toy import SIZES, VOCABULARY, full_logprobs, make_sequence, on_policy, plain_config, weights_of

LENGTH = 96
"""Of all rows where the number of micro-batches is to be exact."""


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """Never trained itself."""
    torch.manual_seed(0)
    sizes = {**SIZES, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 6, "initializer_range": 0.15}
    made = Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=True, **sizes)).eval()
    assert 0.8e6 < sum(parameter.numel() for parameter in made.parameters()) < 1.5e6
    return made


@pytest.fixture(scope="module")
def sequences(model: PreTrainedModel) -> list[TrainingSequence]:
    """Eight rows of one length in two groups, a little off policy."""
    rng = np.random.default_rng(0)
    return on_policy(model, [make_sequence(f"s{i}", f"g{i // 4}", LENGTH, rng) for i in range(8)], drift=0.2)


def moved(model: PreTrainedModel, sequences: Sequence[TrainingSequence], **changes: Any) -> NDArray[np.float64]:
    """How an update changes the weights of a copy."""
    subject = copy.deepcopy(model)
    Learner(subject, plain_config(**changes), 10).update(sequences)
    return weights_of(subject) - weights_of(model)


def assert_same(one: NDArray[np.float64], other: NDArray[np.float64]) -> None:
    """The same up to rounding in float32, and not because nothing moved."""
    assert np.linalg.norm(one) > 1e-3
    assert np.linalg.norm(one - other) < 1e-4 * np.linalg.norm(one)


@pytest.mark.parametrize("extra", [{}, {"kl_coefficient": 0.1, "entropy_coefficient": 0.01, "ratio": "sequence"}])
@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"])
def test_accumulation_of_1x8_is_2x4_is_8x1(
    model: PreTrainedModel, sequences: list[TrainingSequence], aggregation: str, extra: dict[str, Any]
) -> None:
    settings = {"aggregation": aggregation, "aggregation_length": 64, **extra}
    whole = moved(model, sequences, micro_batch_tokens=8 * LENGTH, **settings)
    rows = [make_row(own, responses(own)) for own in sequences]
    for count, size in ((2, 4), (8, 1)):
        assert [len(plan) for plan in plan_micro_batches(rows, size * LENGTH)] == [size] * count
        assert_same(whole, moved(model, sequences, micro_batch_tokens=size * LENGTH, **settings))


def test_neither_order_nor_budget_matters(model: PreTrainedModel) -> None:
    rng = np.random.default_rng(1)
    uneven = on_policy(model, [make_sequence(f"s{i}", f"g{i // 4}", int(rng.integers(30, 200)), rng) for i in range(8)])
    first = moved(model, uneven)
    for budget in (200, 300, 777):
        order = rng.permutation(len(uneven))
        assert_same(first, moved(model, [uneven[int(place)] for place in order], micro_batch_tokens=budget))


@pytest.mark.parametrize("multiple", [1, 32, 256])
def test_the_length_of_the_padding_does_not_matter(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, multiple: int
) -> None:
    rng = np.random.default_rng(2)
    uneven = on_policy(model, [make_sequence(f"s{i}", "g", int(rng.integers(30, 90)), rng) for i in range(4)])
    first = moved(model, uneven)
    monkeypatch.setattr(batching, "PAD_MULTIPLE", multiple)
    assert_same(first, moved(model, uneven))


def test_the_side_of_the_padding_does_not_matter(model: PreTrainedModel) -> None:
    """The learner pads on the right; transformers' own forward pass with padding on the left says the same."""
    rng = np.random.default_rng(3)
    uneven = [make_sequence(f"s{i}", "g", int(rng.integers(30, 90)), rng) for i in range(4)]
    longest = max(len(own) for own in uneven)
    ids = np.zeros((4, longest), np.int64)
    mask = np.zeros((4, longest), np.int64)
    for row, own in enumerate(uneven):
        ids[row, longest - len(own) :], mask[row, longest - len(own) :] = own.token_ids, 1
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    with torch.no_grad():
        logits = model(**{name: torch.from_numpy(value) for name, value in given.items()}).logits
    ours = Learner(copy.deepcopy(model), LearnerConfig(), 1).log_probs(uneven)
    for row, own in enumerate(uneven):
        table = logits[row, longest - len(own) :].log_softmax(-1).numpy()
        places = responses(own)
        assert ours[row][places] == pytest.approx(table[places - 1, own.token_ids[places]], abs=1e-4)
        alone = full_logprobs(model, own.token_ids).detach().numpy()
        assert ours[row][places] == pytest.approx(alone[places, own.token_ids[places]], abs=1e-4)


def _episodes(model: PreTrainedModel) -> tuple[list[Episode], list[Episode]]:
    """The same play twice: as conversations that grow, and with the whole history given anew before every turn."""
    rng = np.random.default_rng(4)
    growing, complete = [], []
    for number in range(4):
        turns: list[Turn] = []
        repeated: list[Turn] = []
        seen = np.zeros(0, np.int32)
        for index in range(4):
            context = rng.integers(0, VOCABULARY, int(rng.integers(5, 12))).astype(np.int32)
            response = rng.integers(0, VOCABULARY, int(rng.integers(2, 6))).astype(np.int32)
            before = np.concatenate([seen, context])
            seen = np.concatenate([before, response])
            logprobs = full_logprobs(model, seen).detach().numpy()[range(len(before), len(seen)), response]
            turns.append(_turn(index, context, index == 0, response, logprobs))
            repeated.append(_turn(index, before, True, response, logprobs))
        growing.append(_episode(f"e{number}", turns, "conversation"))
        complete.append(_episode(f"e{number}", repeated, "window"))
    return growing, complete


def _turn(
    index: int, context: NDArray[np.int32], restart: bool, response: NDArray[np.int32], logprobs: NDArray[np.float32]
) -> Turn:
    return Turn(
        index=index,
        observation=f"state {index}",
        context_ids=context,
        restart=restart,
        observation_span=(0, 0),
        response_ids=response,
        logprobs=logprobs.astype(np.float32),
        entropies=np.zeros(len(response), np.float32),
        response_text="go",
        action="go",
        action_span=(0, 1),
        format_valid=True,
        finished=True,
        accepted=True,
        reward=0.0,
        progress=0.0,
        next_observation="",
        terminated=False,
        truncated=False,
    )


def _episode(name: str, turns: list[Turn], context: str) -> Episode:
    return Episode(
        episode_id=name,
        group_id="g",
        world="toy",
        task_id="g",
        task_type="pick",
        split="train",
        sample=0,
        iteration=0,
        seed=0,
        model_version="test",
        turns=tuple(turns),
        termination=Termination.TURN_LIMIT,
        success=False,
        progress=0.0,
        reward_valid=True,
        temperature=1.0,
        restricted=False,
        context=context,
    )


@pytest.mark.parametrize("ratio", ["token", "turn"])
def test_window_and_conversation_agree_where_the_history_is_complete(model: PreTrainedModel, ratio: str) -> None:
    growing, complete = _episodes(model)
    rng = np.random.default_rng(5)
    advantages = [rng.normal(size=4).tolist() for _ in growing]
    rows = [
        [row for episode, own in zip(episodes, advantages, strict=True) for row in sequences_from_episode(episode, own)]
        for episodes in (growing, complete)
    ]
    assert [len(own) for own in rows] == [4, 16]
    assert_same(*(moved(model, own, ratio=ratio) for own in rows))


def test_a_merged_adapter_is_the_unmerged_one(model: PreTrainedModel, sequences: list[TrainingSequence]) -> None:
    subject = copy.deepcopy(model)
    adapter = AdapterConfig(rank=8, alpha=16)
    learner = Learner(subject, LearnerConfig(learning_rate=1e-3, adapter=adapter), 3)
    for _ in range(3):
        learner.update(sequences)
    unmerged = learner.log_probs(sequences)
    learner.finish()
    merged = Learner(subject, LearnerConfig(), 1).log_probs(sequences)
    for one, other, start in zip(unmerged, merged, on_policy(model, sequences), strict=True):
        assert one == pytest.approx(other, abs=2e-5)
        assert np.abs(one - start.logprobs).max() > 1e-2, "it learned something"


def test_a_skipped_row_counts_as_one_that_went_through(
    model: PreTrainedModel, sequences: list[TrainingSequence]
) -> None:
    dead = [replace(own, advantages=np.zeros_like(own.advantages)) if i < 3 else own for i, own in enumerate(sequences)]
    assert_same(moved(model, dead, skip_zero_advantage=True), moved(model, dead, skip_zero_advantage=False))
