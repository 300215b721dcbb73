"""The smallest whole loop: sample, reward, GRPO advantages, update. Reward must rise, and only because of the sign."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worldwise.algorithms.advantages.grpo import grpo
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.learner import Learner, LearnerConfig

from .toy import toy_model

QUESTIONS, SAMPLES, ANSWERS = 4, 16, 8


def _play(learner: Learner, rng: np.random.Generator) -> tuple[list[list[int]], list[TrainingSequence]]:
    """Every question is a token; the right answer to question q is token 10 + 2q among ids 10..17."""
    allowed = np.arange(10, 10 + ANSWERS, dtype=np.int32)
    answers, rows = [], []
    for question in range(QUESTIONS):
        prompt = [1, 20 + question, 2]
        with torch.no_grad():
            logits = learner.model(input_ids=torch.tensor([prompt])).logits[0, -1, 10 : 10 + ANSWERS]
        logprobs = logits.log_softmax(-1).double().numpy()
        drawn = rng.choice(ANSWERS, size=SAMPLES, p=np.exp(logprobs) / np.exp(logprobs).sum())
        answers.append((10 + drawn).tolist())
        rows += [
            TrainingSequence(
                sequence_id=f"q{question}/{i}",
                group_id=f"q{question}",
                token_ids=np.array([*prompt, 10 + answer], dtype=np.int32),
                roles=np.array([0, 0, 0, Role.RESPONSE], dtype=np.int8),
                turns=np.array([-1, -1, -1, 0], dtype=np.int32),
                logprobs=np.array([0, 0, 0, logprobs[answer]], dtype=np.float32),
                advantages=np.zeros(4, dtype=np.float32),
                allowed=[None, None, None, allowed],
            )
            for i, answer in enumerate(drawn)
        ]
    return answers, rows


def learning_curve(sign: float, iterations: int, config: LearnerConfig) -> list[float]:
    """Share of right answers per iteration; with `sign` -1 they are punished."""
    learner = Learner(toy_model(), config, 2 * iterations)
    rng = np.random.default_rng(0)
    curve = []
    for _ in range(iterations):
        answers, rows = _play(learner, rng)
        assert learner.check_sampler_gap(rows).largest < 1e-5
        rewards = np.array([float(a == 10 + 2 * q) for q, drawn in enumerate(answers) for a in drawn])
        curve.append(float(rewards.mean()))
        advantages = sign * grpo(rewards, [row.group_id for row in rows])
        for row, advantage in zip(rows, advantages, strict=True):
            row.advantages[-1] = advantage
        learner.update(rows)
    return curve


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_reward_follows_the_sign_of_the_advantage(sign: float) -> None:
    curve = learning_curve(sign, 25, LearnerConfig(learning_rate=3e-4, updates=2))
    start, end = float(np.mean(curve[:3])), float(np.mean(curve[-5:]))
    if sign > 0:
        assert end > max(0.8, start + 0.2), curve
    else:
        assert end < 0.5 * start, curve
