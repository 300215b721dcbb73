"""A tree row (several continuations of one prompt in one pass) equals its continuations as rows of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.body import llama
from worldwise.training.errors import LearnerError
from worldwise.training.learner import Learner

from .toy import VOCABULARY, make_sequence, moved_by, on_policy, plain_config, toy_model


def _continuations(seed: int, prefix: int = 37, lengths: tuple[int, ...] = (5, 9, 1, 6)) -> list[TrainingSequence]:
    """Rows that share their first `prefix` tokens; a scaffold token opens each continuation of odd number."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, VOCABULARY, prefix)
    rows = []
    for k, length in enumerate(lengths):
        roles = np.concatenate([np.zeros(prefix), np.ones(length)]).astype(np.int8)
        if k % 2:
            roles[prefix] = Role.CONTEXT
        rows.append(
            TrainingSequence(
                sequence_id=f"p{seed}b{k}",
                group_id=f"p{seed}",
                token_ids=np.concatenate([shared, rng.integers(0, VOCABULARY, length)]).astype(np.int32),
                roles=roles,
                turns=np.where(np.arange(prefix + length) < prefix, -1, 0).astype(np.int32),
                logprobs=np.zeros(prefix + length, dtype=np.float32),
                advantages=(rng.normal() * roles).astype(np.float32),
            )
        )
    return rows


def _tree(rows: list[TrainingSequence], prefix: int = 37) -> TrainingSequence:
    def join(name: str) -> Any:
        return np.concatenate([getattr(rows[0], name)[:prefix], *[getattr(row, name)[prefix:] for row in rows]])

    branches = [np.zeros(prefix), *[np.full(len(row) - prefix, k + 1) for k, row in enumerate(rows)]]
    return TrainingSequence(
        sequence_id=rows[0].group_id,
        group_id=rows[0].group_id,
        token_ids=join("token_ids"),
        roles=join("roles"),
        turns=join("turns"),
        logprobs=join("logprobs"),
        advantages=join("advantages"),
        branches=np.concatenate(branches).astype(np.int32),
    )


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("forward", ["own", "sdpa", "eager"])
def test_log_probs_are_those_of_separate_rows(kind: Any, forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_model(kind)
    if forward != "own":
        monkeypatch.setattr(llama, "supports", lambda model: False)
        model.set_attn_implementation(forward)
    rows = _continuations(1)
    learner = Learner(model, plain_config(), 1)
    separate = learner.log_probs(rows)
    (together,) = learner.log_probs([_tree(rows)])
    expected = np.concatenate([separate[0][:37], *[values[37:] for values in separate]])
    np.testing.assert_allclose(together, expected, atol=1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_gradients_are_those_of_separate_rows(aggregation: str, ratio: str) -> None:
    rows = [on_policy(toy_model(), _continuations(seed), drift=0.3) for seed in (1, 2)]
    config = plain_config(aggregation=aggregation, ratio=ratio, entropy_coefficient=0.01)
    separate = moved_by(config, [row for group in rows for row in group])
    together = moved_by(config, [_tree(group) for group in rows])
    assert np.abs(separate).max() > 1e-3
    np.testing.assert_allclose(together, separate, atol=1e-6)


def test_tree_rows_and_plain_rows_can_share_an_update() -> None:
    rows = on_policy(toy_model(), _continuations(1), drift=0.3)
    plain = on_policy(toy_model(), [make_sequence("s", "other", 50, np.random.default_rng(0))], drift=0.3)
    for budget in (64, 100_000):
        config = plain_config(micro_batch_tokens=budget)
        np.testing.assert_allclose(
            moved_by(config, [*plain, _tree(rows)]), moved_by(config, [*rows, *plain]), atol=1e-6
        )


def test_supervised_loss_is_that_of_separate_rows() -> None:
    rows = _continuations(3)
    losses = [Learner(toy_model(), plain_config(), 1).supervised_update(x)["loss"] for x in (rows, [_tree(rows)])]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_malformed_branches_are_refused() -> None:
    tree = _tree(_continuations(1))
    assert tree.branches is not None
    learner = Learner(toy_model(), plain_config(), 1)
    with pytest.raises(LearnerError, match="branches must be zeros"):
        learner.log_probs([replace(tree, branches=tree.branches[::-1].copy())])
    with pytest.raises(LearnerError, match="branches must be zeros"):
        learner.log_probs([replace(tree, branches=tree.branches + 1)])
