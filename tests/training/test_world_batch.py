"""Observation tokens in the policy's own update: they change nothing else, and their loss has its own denominator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.critic_config import CriticConfig
from worldwise.training.learner import Learner
from worldwise.training.world_config import WorldModelConfig

from .toy import batch, full_logprobs, moved_by, on_policy, plain_config, toy_model, weights_of

PAW = WorldModelConfig(rho=1.0)


def marked(sequence: TrainingSequence, weight: float = 1.0, **changes: Any) -> TrainingSequence:
    """The sequence with all observation tokens to be learned."""
    observed = sequence.roles == Role.OBSERVATION
    return replace(
        sequence,
        world_weights=(weight * observed).astype(np.float32),
        world_tokens=int(observed.sum()),
        **changes,
    )


def moved(sequences: list[TrainingSequence], world_model: WorldModelConfig | None = PAW, **config: Any) -> Any:
    """Change of the weights of a fresh toy model, and the metrics."""
    model = toy_model()
    before = weights_of(model)
    numbers = Learner(model, plain_config(**config), 10, world_model=world_model).update(sequences)
    return weights_of(model) - before, numbers


@pytest.fixture(scope="module")
def sequences() -> list[TrainingSequence]:
    return on_policy(toy_model(), batch(8), drift=0.1)


@pytest.mark.parametrize("off", ["weight", "coefficient", "module"])
@pytest.mark.parametrize("critic", [None, CriticConfig(trunk="own")])
def test_nothing_to_learn_is_bit_for_bit_the_plain_update(
    sequences: list[TrainingSequence], off: str, critic: CriticConfig | None
) -> None:
    if critic is not None:
        sequences = [replace(own, returns=own.advantages, values=0 * own.advantages) for own in sequences]
    plain, numbers = moved(sequences, None, critic=critic)
    given = [marked(own, 0.0 if off == "weight" else 1.0) for own in sequences]
    world_model = {"weight": PAW, "coefficient": WorldModelConfig(coefficient=0.0), "module": None}[off]
    again, same = moved(given, world_model, critic=critic)
    assert plain.tobytes() == again.tobytes()
    assert numbers == same
    assert np.abs(plain).max() > 0.0


def test_the_policys_part_is_not_touched(sequences: list[TrainingSequence]) -> None:
    """Together = policy alone + world model alone, in an update that is nearly linear in the gradient."""
    settings = {"learning_rate": 1.0, "epsilon": 100.0}
    both, numbers = moved([marked(own) for own in sequences], **settings)
    policy, plain = moved(sequences, None, **settings)
    dead = [marked(replace(own, advantages=0 * own.advantages)) for own in sequences]
    world, _ = moved(dead, **settings)
    assert np.linalg.norm(world) > 0.01 * np.linalg.norm(policy) > 0.0
    assert np.linalg.norm(both - policy - world) < 1e-3 * np.linalg.norm(both)
    for name in ("policy_loss", "entropy", "ratio_mean", "ratio_max", "advantage_size", "clip_fraction"):
        assert numbers[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_appended_tokens_leave_the_log_probabilities_of_actions_alone(kind: Any) -> None:
    model = toy_model(kind)
    shown = batch(4)
    cut = []
    for own in shown:
        last = int(np.flatnonzero(own.roles == Role.RESPONSE)[-1]) + 1
        arrays = {name: getattr(own, name)[:last] for name in ("token_ids", "roles", "turns", "logprobs", "advantages")}
        cut.append(replace(own, **arrays))
    assert any(len(one) > len(other) for one, other in zip(shown, cut, strict=True))
    learner = Learner(model, plain_config(), 1)
    for one, other in zip(learner.log_probs(shown), learner.log_probs(cut), strict=True):
        assert one[: len(other)] == pytest.approx(other, abs=1e-4)


def test_the_denominator_counts_all_selected_tokens_of_the_step(sequences: list[TrainingSequence]) -> None:
    dead = [marked(replace(own, advantages=0 * own.advantages), weight=0.5) for own in sequences[:4]]
    # Selected with weight 0: they count below the line and pull at nothing.
    idle = [marked(replace(own, advantages=0 * own.advantages), weight=0.0) for own in sequences[4:]]
    _, numbers = moved([*dead, *idle])
    model = toy_model()
    total, count = 0.0, sum(own.world_tokens for own in [*dead, *idle])
    for own in dead:
        places = np.flatnonzero(own.roles == Role.OBSERVATION)
        table = full_logprobs(model, own.token_ids).detach().numpy()
        total += 0.5 * float((1.0 - np.exp(table[places, own.token_ids[places]])).sum())
    assert numbers["world_loss"] == pytest.approx(total / count, rel=1e-4)
    assert numbers["world_tokens"] == sum(own.world_tokens for own in dead)
    assert numbers["policy_loss"] == 0.0


@pytest.mark.parametrize("budget", [100, 300, 100_000])
def test_the_step_does_not_depend_on_how_it_is_cut(sequences: list[TrainingSequence], budget: int) -> None:
    given = [marked(own, 0.3) for own in sequences]
    whole, _ = moved(given)
    part, _ = moved(given, micro_batch_tokens=budget)
    assert np.linalg.norm(whole - part) < 1e-4 * np.linalg.norm(whole)


def test_temperature_and_targets_of_observed_tokens() -> None:
    """They are scored at temperature 1 whatever the play's was, and for other targets where these are given."""
    own = replace(batch(1)[0], temperature=0.4)
    observed = own.roles == Role.OBSERVATION
    places = np.flatnonzero(observed)
    other = own.token_ids.copy()
    other[places] = (other[places] + 7) % 61
    model = toy_model()
    table = full_logprobs(model, own.token_ids).detach().numpy()
    for targets in (own.token_ids, other):
        given = marked(replace(own, advantages=0 * own.advantages), world_targets=targets)
        _, numbers = moved([given])
        assert numbers["world_nats"] == pytest.approx(-table[places, targets[places]].mean(), rel=1e-4)


def test_a_dead_group_trains_the_world_model_alone(sequences: list[TrainingSequence]) -> None:
    dead = [marked(replace(own, advantages=0 * own.advantages)) for own in sequences[:4]]
    change, numbers = moved(dead)
    assert np.abs(change).max() > 0.0
    assert numbers["skipped_sequences"] == 0.0
    before = Learner(toy_model(), plain_config(), 1).observation_numbers(dead)
    model = toy_model()
    learner = Learner(model, plain_config(learning_rate=1e-2, epsilon=1e-8), 10, world_model=PAW)
    for _ in range(10):
        learner.update(dead)
    after = learner.observation_numbers(dead)
    assert after["world_probability"] > 1.5 * before["world_probability"]


def test_the_cosine_is_that_of_the_two_gradients(sequences: list[TrainingSequence]) -> None:
    given = [marked(own) for own in sequences]
    settings = {"learning_rate": 1.0, "epsilon": 100.0, "micro_batch_tokens": 100_000}
    _, numbers = moved(given, **settings)
    names = [name for name, _ in toy_model().named_parameters()]
    probed = next(name for name in reversed(names) if name.endswith("down_proj.weight"))
    found = []
    for rows, world_model in ((sequences, None), ([replace(own, advantages=0 * own.advantages) for own in given], PAW)):
        model = toy_model()
        before = dict(model.named_parameters())[probed].detach().clone()
        Learner(model, plain_config(**settings), 10, world_model=world_model).update(rows)
        found.append((dict(model.named_parameters())[probed].detach() - before).flatten())
    assert numbers["world_gradient_cosine"] == pytest.approx(float(torch.cosine_similarity(*found, dim=0)), abs=1e-2)


def test_marks_are_left_alone_without_the_module(sequences: list[TrainingSequence]) -> None:
    assert moved_by(plain_config(), [marked(own) for own in sequences]).tobytes() == (
        moved_by(plain_config(), sequences).tobytes()
    )
