"""Scoring chosen tokens: against the model's own forward pass, whatever shares the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training import forward
from worldwise.training.batching import make_row, micro_batches, plan_micro_batches
from worldwise.training.errors import LearnerError
from worldwise.training.forward import score_tokens
from worldwise.training.learner import Learner

from .toy import VOCABULARY, batch, full_logprobs, make_sequence, plain_config, toy_model

CPU = torch.device("cpu")


def _responses(sequence: TrainingSequence) -> Any:
    return np.flatnonzero(sequence.roles == Role.RESPONSE)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("budget", [32, 300, 100_000])
def test_log_probs_match_the_full_forward_pass(kind: Any, budget: int) -> None:
    model = toy_model(kind)
    sequences = [replace(s, temperature=t) for s, t in zip(batch(6), [1.0, 0.5, 2.0] * 2, strict=True)]
    learner = Learner(model, plain_config(micro_batch_tokens=budget), 1)
    for sequence, ours in zip(sequences, learner.log_probs(sequences), strict=True):
        with torch.no_grad():
            table = full_logprobs(model, sequence.token_ids, sequence.temperature).numpy()
        picked = table[np.arange(len(sequence)), sequence.token_ids]
        expected = np.where(sequence.roles == Role.RESPONSE, picked, 0.0)
        np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-5)
        assert np.abs(ours).max() > 1.0


def test_entropies_and_hits_match_the_full_forward_pass() -> None:
    model, sequence = toy_model(), batch(1)[0]
    (micro,) = micro_batches([make_row(sequence, _responses(sequence))], 1000, CPU)
    with torch.no_grad():
        scores, table = score_tokens(model, micro), full_logprobs(model, sequence.token_ids)[_responses(sequence)]
    torch.testing.assert_close(scores.entropies, -(table.exp() * table).sum(-1), atol=1e-5, rtol=1e-5)
    assert scores.hits.tolist() == (table.argmax(-1).numpy() == sequence.token_ids[_responses(sequence)]).tolist()


def test_restricted_tokens_are_scored_among_their_allowed_ids() -> None:
    rng = np.random.default_rng(5)
    model, sequence = toy_model(), batch(1)[0]
    allowed: list[Any] = [None] * len(sequence)
    for position in _responses(sequence)[1::2]:
        others = rng.choice(VOCABULARY, size=int(rng.integers(1, 9)), replace=False)
        allowed[position] = np.unique(np.append(others, sequence.token_ids[position])).astype(np.int32)
    sequence = replace(sequence, allowed=allowed, temperature=0.7)
    (ours,) = Learner(model, plain_config(), 1).log_probs([sequence])
    with torch.no_grad():
        table = full_logprobs(model, sequence.token_ids, 0.7)
    for position in _responses(sequence):
        ids = np.arange(VOCABULARY) if allowed[position] is None else allowed[position]
        narrow = table[position, ids.tolist()].log_softmax(-1)
        expected = narrow[ids.tolist().index(sequence.token_ids[position])]
        assert ours[position] == pytest.approx(float(expected), abs=1e-5)


def test_a_token_outside_its_allowed_ids_is_refused() -> None:
    sequence = batch(1)[0]
    position = _responses(sequence)[0]
    allowed: list[Any] = [None] * len(sequence)
    allowed[position] = np.array([(sequence.token_ids[position] + 1) % VOCABULARY], dtype=np.int32)
    with pytest.raises(LearnerError, match="not among its allowed ids"):
        Learner(toy_model(), plain_config(), 1).log_probs([replace(sequence, allowed=allowed)])


def test_logits_in_chunks_change_neither_values_nor_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = [make_row(s, _responses(s)) for s in batch(4)]
    (micro,) = micro_batches(sequences, 100_000, CPU)
    results = []
    for limit in (2**25, 7 * VOCABULARY):
        monkeypatch.setattr(forward, "LOGIT_CHUNK", limit)
        model = toy_model()
        scores = score_tokens(model, micro, entropy_gradient=True)
        (scores.logprobs.sum() + scores.entropies.square().sum()).backward()
        results.append((scores, torch.cat([p.grad.ravel() for p in model.parameters() if p.grad is not None])))
    (whole, gradient), (chunked, chunked_gradient) = results
    torch.testing.assert_close(chunked.logprobs, whole.logprobs)
    torch.testing.assert_close(chunked.entropies, whole.entropies)
    torch.testing.assert_close(chunked_gradient, gradient, atol=1e-5, rtol=1e-4)


def test_a_model_with_another_head_goes_through_its_own_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = batch(3)
    usual = Learner(toy_model(), plain_config(), 1).log_probs(sequences)
    monkeypatch.setattr(forward, "LINEAR_HEADS", frozenset())
    other = Learner(toy_model(), plain_config(), 1).log_probs(sequences)
    for left, right in zip(usual, other, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_micro_batches_hold_every_row_once_within_the_budget() -> None:
    rng = np.random.default_rng(2)
    rows = [make_row(s, _responses(s)) for s in batch(30, seed=4)]
    rows.append(make_row(make_sequence("long", "g", 500, rng), np.array([499])))
    rows.append(make_row(make_sequence("mute", "g", 60, rng), np.zeros(0, dtype=np.int64)))
    plan = plan_micro_batches(rows, 256)
    assert sorted(i for part in plan for i in part) == list(range(31))
    for part in plan:
        length = max(len(rows[i]) for i in part)
        assert len(part) * (-(-length // 32) * 32) <= 256 or len(part) == 1
    batches = micro_batches(rows, 256, CPU)
    places = np.concatenate([micro.places for micro in batches])
    assert sorted(places.tolist()) == list(range(sum(len(row.scored) for row in rows)))
    assert all(micro.input_ids.shape[1] % 32 == 0 for micro in batches)


def test_the_first_token_cannot_be_scored() -> None:
    sequence = batch(1)[0]
    with pytest.raises(LearnerError, match="token 0 cannot be scored"):
        make_row(sequence, np.array([0, 4]))


def test_greedy_play_has_nothing_to_train_on() -> None:
    with pytest.raises(LearnerError, match=r"temperature 0\.0"):
        Learner(toy_model(), plain_config(), 1).log_probs([replace(batch(1)[0], temperature=0.0)])
