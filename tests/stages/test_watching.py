"""Warnings of a training loop: when they come, what they say, and that a resumed run repeats none."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.episodes.transitions import extract
from worldwise.ledger.keys import semantic
from worldwise.ledger.workspace import Workspace
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.collect import CollectConfig, collect_episodes
from worldwise.stages.encoder import Encoder
from worldwise.stages.estimators import EstimatorConfig
from worldwise.stages.midtrain import RwmlConfig, midtrain_world_model
from worldwise.stages.policy_rows import group_sizes, state_numbers, truncation_numbers
from worldwise.stages.train_policy import PolicyConfig, train_policy
from worldwise.stages.watching import Watch, WatchConfig, policy_watch, prediction_watch
from worldwise.training.learner import LearnerConfig
from worldwise.worlds.contract import WorldFamily

POLICY = PolicyConfig(max_turns=15, group_size=8, keep_window=2, watch=WatchConfig(window=2, idle_updates=2))
RWML = RwmlConfig(watch=WatchConfig(window=2, idle_updates=2))
ROLLOUT = RolloutConfig(max_tokens=32)

FINE = {
    "success": 0.4,
    "running_success": 0.4,
    "truncated_episodes": 0.5,
    "token_limit_episodes": 0.0,
    "truncated_responses": 0.5,
    "zero_variance": 0.8,
    "mixed_groups": 0.2,
    "solved_groups": 0.1,
    "entropy": 0.5,
    "state_group_size_later": 1.05,
    "learner_grad_norm": 0.1,
    "learner_optimizer_steps": 2.0,
    "learner_kl_update": 0.1,
    "learner_kl_reference": 1.0,
}
"""A row of policy RL with every number at its limit."""

PREDICTED = {
    "reward": 0.5,
    "mixed_groups": 0.3,
    "entropy": 0.5,
    "truncated_predictions": 0.5,
    "learner_grad_norm": 0.1,
    "learner_optimizer_steps": 1.0,
    "learner_kl_update": 0.1,
    "learner_kl_reference": 1.0,
}
"""The same of RWML."""

Row = dict[str, float]


def told(watch: Watch, rows: Sequence[Row], caplog: pytest.LogCaptureFixture, start: int = 0) -> list[tuple[int, str]]:
    """(step, message) of every warning while the rows from `start` on are looked at one after the other."""
    found = []
    known = [{"step": float(step), **row} for step, row in enumerate(rows)]
    for step in range(start, len(rows)):
        caplog.clear()
        watch.look(known[:step], step, rows[step])
        found += [(step, record.getMessage()) for record in caplog.records if record.levelno == logging.WARNING]
    return found


def policy(config: PolicyConfig = POLICY, rollout: RolloutConfig = ROLLOUT) -> Watch:
    return policy_watch("policy", config, rollout, world_turns=50)


def test_numbers_at_their_limits_are_fine(caplog: pytest.LogCaptureFixture) -> None:
    assert told(policy(), [FINE] * 6, caplog) == []
    assert told(prediction_watch("rwml", RWML, 0.2), [PREDICTED] * 6, caplog) == []
    assert told(policy(), [{}] * 6, caplog) == [], "a row may lack columns"
    assert policy().look([], 0, FINE) == {"warnings": 0.0}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"truncated_episodes": 0.52},
            [
                "policy, iteration 1: 52 % of the episodes were cut off in the last 2 iterations, 0 % at the token",
                "policy.watch.truncation_max=0.5",
                "raise policy.max_turns (now 15)",
            ],
        ),
        (
            {"truncated_episodes": 0.6, "token_limit_episodes": 0.4},
            ["60 % of the episodes", "40 % at the token limit", "raise rollout.max_episode_tokens (now what the model"],
        ),
        ({"truncated_responses": 0.51}, ["51 % of the responses", "raise rollout.max_tokens (now 32)"]),
        (
            {"zero_variance": 0.9},
            [
                "90 % of the groups had equal returns",
                "policy.watch.zero_variance_max=0.8",
                "take easier tasks",
                "raise policy.temperature (now 1) or policy.group_size (now 8) or policy.sampling_rounds (now 1)",
            ],
        ),
        ({"zero_variance": 0.9, "solved_groups": 0.8}, ["solved by every episode: take harder tasks"]),
        (
            {"learner_grad_norm": 0.0},
            [
                "the gradient was 0 2 times in a row (policy.watch.idle_updates=2)",
                "returns differed",
                "policy.learner.adapter",
            ],
        ),
        (
            {"learner_kl_update": 0.11},
            ["policy, iteration 0", "0.11 nats", "lower policy.learner.learning_rate (now 0.0002)"],
        ),
        (
            {"learner_kl_reference": 1.5},
            ["1.5 nats", "raise policy.learner.kl_coefficient (now 0)", "policy.watch.kl_reference_max=1"],
        ),
        (
            {"state_group_size_later": 1.04},
            [
                "a state behind the first turn occurs 1.040 times",
                "policy.watch.state_group_min=1.05",
                "policy.algorithm=grpo",
            ],
        ),
        (
            {"entropy": 9e-4},
            ["entropy is 0.0009", "at a success of 0.40", "raise policy.learner.entropy_coefficient (now 0)"],
        ),
    ],
)
def test_a_number_beyond_its_limit_is_told_with_what_to_change(
    changed: Row, says: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    found = told(policy(), [FINE | changed] * 6, caplog)
    assert len(found) == 1, "told once while it lasts"
    for part in says:
        assert part in found[0][1]


def test_it_is_told_again_after_it_recovered(caplog: pytest.LogCaptureFixture) -> None:
    bad = FINE | {"zero_variance": 1.0}
    # Means of two: .8, .9, 1, .9, .8, .9
    rows = [FINE, bad, bad, FINE, FINE, bad]
    assert [step for step, _ in told(policy(), rows, caplog)] == [1, 5]
    known = [{"step": float(step), **row} for step, row in enumerate(rows)]
    counts = [policy().look(known[:step], step, rows[step])["warnings"] for step in range(len(rows))]
    assert counts == [0.0, 1.0, 1.0, 1.0, 0.0, 1.0], "the curve shows how long it lasts"


def test_every_condition_counts(caplog: pytest.LogCaptureFixture) -> None:
    bad = FINE | {"learner_kl_update": 3.0, "learner_kl_reference": 3.0}
    assert policy().look([], 0, bad) == {"warnings": 2.0}
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_resumed_run_warns_as_an_undisturbed_one(cut: int, caplog: pytest.LogCaptureFixture) -> None:
    bad = FINE | {"truncated_episodes": 1.0, "learner_grad_norm": 0.0, "running_success": 0.1, "learner_kl_update": 1.0}
    rows = [FINE, bad, bad, FINE, FINE, bad, bad, bad]
    whole = told(policy(), rows, caplog)
    # Cut off in 1 and 5, no gradient in 2 and 6, far from what played in 1 and 5, success fallen in 5.
    assert [step for step, _ in whole] == [1, 1, 2, 5, 5, 5, 6]
    resumed = told(policy(), rows[:cut], caplog) + told(policy(), rows, caplog, start=cut)
    assert resumed == whole


def test_estimators_that_compare_no_groups_need_none_that_differ(caplog: pytest.LogCaptureFixture) -> None:
    alone = policy_watch("policy", POLICY, ROLLOUT, 50, compares=False)
    assert told(alone, [FINE | {"zero_variance": 1.0}] * 3, caplog) == []


def test_the_turn_limit_that_holds_is_named(caplog: pytest.LogCaptureFixture) -> None:
    rows = [FINE | {"truncated_episodes": 0.9}] * 2
    free = POLICY.model_copy(update={"max_turns": None})
    settings = [(POLICY, ROLLOUT), (free, RolloutConfig(max_turns=12)), (free, ROLLOUT)]
    found = [told(policy(*own), rows, caplog)[0][1] for own in settings]
    for message, name in zip(found, ("policy.", "rollout.", "the world's own "), strict=True):
        assert f"raise {name}max_turns (now " in message
    beyond = POLICY.model_copy(update={"max_turns": 60})
    assert "the world's own max_turns (now 50)" in told(policy(beyond), rows, caplog)[0][1]


def test_no_gradient_without_an_optimizer_step(caplog: pytest.LogCaptureFixture) -> None:
    # Where all advantages are 0 the learner takes no step and reports no norm.
    idle = {name: value for name, value in FINE.items() if name != "learner_grad_norm"}
    idle |= {"learner_optimizer_steps": 0.0, "zero_variance": 1.0, "mixed_groups": 0.0}
    silent = POLICY.model_copy(update={"watch": WatchConfig(window=2, idle_updates=3, zero_variance_max=1.0)})
    found = told(policy(silent), [FINE, idle, idle, idle, FINE], caplog)
    assert [step for step, _ in found] == [3]
    assert "the returns of a group did not differ: raise policy.temperature (now 1)" in found[0][1]


def test_entropy_counts_against_its_start_and_only_as_long_as_there_is_something_to_learn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    high, low = FINE | {"entropy": 2.0}, FINE | {"entropy": 0.19}
    # Means of two from step 3 on: 0.19 < 0.1 * 2
    found = told(policy(), [high, high, low, low, low], caplog)
    assert [step for step, _ in found] == [3]
    assert "the entropy is 0.19 nats per token after 2 in the first 2 rows" in found[0][1]
    assert told(policy(), [high, high, *[FINE | {"entropy": 0.21}] * 3], caplog) == []
    assert told(policy(), [high, high, *[low | {"success": 0.95}] * 3], caplog) == []


def test_a_fall_of_the_success(caplog: pytest.LogCaptureFixture) -> None:
    # The first mean is one of too few rows, though it is the highest.
    running = [0.9, 0.5, 0.6, 0.6, 0.3, 0.29, 0.2, 0.4, 0.1]
    found = told(policy(), [FINE | {"running_success": value} for value in running], caplog)
    assert [step for step, _ in found] == [5, 8]
    assert "policy, iteration 5: running success fell to 29.0 % from 60.0 % in iteration 2" in found[0][1]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"truncated_predictions": 0.6}, ["60 % of the predictions", "raise rwml.max_tokens (now 128)"]),
        ({"mixed_groups": 0.1, "reward": 0.02}, ["30 % to 70 %", "never rewarded: raise rwml.tau_d (now 0.2)"]),
        ({"mixed_groups": 0.1, "reward": 0.98}, ["10 % of the groups", "always rewarded: lower rwml.tau_d (now 0.2)"]),
        ({"mixed_groups": 0.8}, ["80 % of the groups", "by luck: lower rwml.tau_d (now 0.2)"]),
        ({"learner_grad_norm": 0.0}, ["rwml.watch.idle_updates=2", "rwml.learner.adapter"]),
        ({"learner_kl_update": 0.2}, ["rwml, update 0", "rwml.watch.kl_max=0.1"]),
        ({"learner_kl_reference": 2.0}, ["raise rwml.learner.kl_coefficient (now 0.01)"]),
        ({"entropy": 0.0}, ["at a reward of 0.50", "rwml.watch.entropy_share=0.1"]),
    ],
)
def test_rwml_is_watched(changed: Row, says: list[str], caplog: pytest.LogCaptureFixture) -> None:
    found = told(prediction_watch("rwml", RWML, 0.2), [PREDICTED | changed] * 6, caplog)
    assert len(found) == 1
    for part in says:
        assert part in found[0][1]


def test_groups_without_variance_are_told_even_where_few_mixed_ones_are_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = RWML.model_copy(update={"mixed_low": 0.0})
    rows = [PREDICTED | {"mixed_groups": 0.15}] * 3
    assert "20 % to 70 %" in told(prediction_watch("rwml", wanted, 0.2), rows, caplog)[0][1]
    silent = wanted.model_copy(update={"watch": WatchConfig(window=2, zero_variance_max=1.0)})
    assert told(prediction_watch("rwml", silent, 0.2), rows, caplog) == []


def test_limits_have_ranges_and_change_no_result() -> None:
    for wrong in ({"window": 0}, {"truncation_max": 1.5}, {"state_group_min": 0.9}, {"kl_max": 0.0}, {"entropy": 1.0}):
        with pytest.raises(ValidationError):
            WatchConfig.model_validate(wrong)
    for block in (PolicyConfig, RwmlConfig):
        other = block.model_validate({"watch": {"truncation_max": 0.9, "window": 3}})
        assert semantic("block", other) == semantic("block", block())


def test_truncation_by_hand(make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]) -> None:
    def cut(index: int) -> Turn:
        return replace(make_turn(index), finished=False)

    episodes = [
        make_episode("a", success=True),
        make_episode("b", turns=[make_turn(0), cut(1), cut(2)], termination=Termination.TURN_LIMIT),
        make_episode("c", turns=[cut(0)], termination=Termination.TOKEN_LIMIT),
        make_episode("d", turns=[make_turn(0), make_turn(1)], termination=Termination.FAILED),
        make_episode("e", turns=[cut(0)], termination=Termination.TIMEOUT),
    ]
    assert truncation_numbers(episodes) == {
        "truncated_episodes": 2 / 4,
        "token_limit_episodes": 1 / 4,
        "truncated_responses": 3 / 8,
    }
    assert set(truncation_numbers([]).values()) == {0.0}


def test_state_groups_by_hand(make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]) -> None:
    def walk(name: str, group: str, *states: str) -> Episode:
        return make_episode(name, group=group, turns=[make_turn(i, observation=s) for i, s in enumerate(states)])

    episodes = [
        walk("a", "g", "hall", "hall", "kitchen", "hall"),
        walk("b", "g", "hall", "kitchen", "attic"),
        walk("a", "h", "hall", "cellar", "cellar"),
        make_episode("c", group="h", turns=[make_turn(0, observation="hall")], termination=Termination.TIMEOUT),
    ]
    # g: hall 4, kitchen 2, attic 1; h: hall 1, cellar 2. 10 turns in 5 groups.
    assert state_numbers(episodes, EstimatorConfig(), str) == {
        "state_group_size": 2.0,
        "state_groups_1": 0.2,
        "state_groups_2_3": 0.4,
        "state_groups_4_7": 0.4,
        "state_groups_8_up": 0.0,
        # Without hall, where all begin: kitchen 2, attic 1, cellar 2.
        "state_group_size_later": 5 / 3,
    }
    assert state_numbers(episodes, EstimatorConfig(algorithm="grpo"), str) == {}
    assert state_numbers(episodes[3:], EstimatorConfig(), str) == {}


def test_short_episodes_that_repeat_no_state_are_told(
    make_episode: Callable[..., Episode], make_turn: Callable[..., Turn]
) -> None:
    """Their first turns share a state, which alone makes 80 turns in 73 groups: 1.096."""
    episodes = [
        make_episode(
            str(number),
            turns=[make_turn(0, observation="start")]
            + [make_turn(i, observation=f"{number} {i}") for i in range(1, 10)],
        )
        for number in range(8)
    ]
    numbers = state_numbers(episodes, EstimatorConfig(), str)
    assert numbers["state_group_size"] == pytest.approx(80 / 73)
    assert numbers["state_group_size_later"] == 1.0


def test_shares_by_size_of_the_state_group() -> None:
    # Groups of 1, 2, 3, 4, 7, 8 and 25 turns.
    found = group_sizes(np.repeat(np.arange(7), [1, 2, 3, 4, 7, 8, 25]))
    assert found == {
        "state_group_size": 50 / 7,
        "state_groups_1": 1 / 50,
        "state_groups_2_3": 5 / 50,
        "state_groups_4_7": 11 / 50,
        "state_groups_8_up": 33 / 50,
    }


def test_a_policy_run_whose_episodes_are_cut(
    start: Checkpoint, family: WorldFamily, context: StageContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = PolicyConfig(
        algorithm="gigpo",
        iterations=4,
        tasks_per_iteration=4,
        group_size=4,
        max_turns=1,
        learner=LearnerConfig(learning_rate=1e-4),
        watch=WatchConfig(window=2),
    )

    def run(own: StageContext) -> tuple[list[Row], list[str]]:
        caplog.clear()
        model = replace(start, model=copy.deepcopy(start.model))
        rows = train_policy(model, family.tasks("train"), [], config, own, "policy").curve
        return rows, [record.getMessage() for record in caplog.records if "watch." in record.getMessage()]

    rows, warned = run(context)
    for row in rows:
        assert row["truncated_episodes"] == pytest.approx(1.0 - row["success"])
        assert (row["token_limit_episodes"], row["truncated_responses"]) == (0.0, 0.0)
        # One turn each: the four episodes of a task share its only state.
        assert (row["state_group_size"], row["state_groups_4_7"]) == (4.0, 1.0)
    cut = [text for text in warned if "of the episodes were cut off" in text]
    assert len(cut) == 1
    assert "policy, iteration 1: " in cut[0]
    assert "raise policy.max_turns (now 1)" in cut[0]
    assert rows[0]["warnings"] == 0.0
    assert all(row["warnings"] >= 1.0 for row in rows[1:])

    class KilledError(BaseException):
        pass

    class Killing(Workspace):
        def save(self, write: Any) -> None:
            super().save(write)
            raise KilledError

    found: list[str] = []
    for _ in range(3):
        with pytest.raises(KilledError):
            run(replace(context, saver=Killing(tmp_path / "work", every_s=0.0)))
        found += [record.getMessage() for record in caplog.records if "watch." in record.getMessage()]
    later, last = run(replace(context, saver=Workspace(tmp_path / "work", every_s=0.0)))
    assert found + last == warned
    assert [row["warnings"] for row in later] == [row["warnings"] for row in rows]


def test_predictions_that_are_cut(
    start: Checkpoint,
    family: WorldFamily,
    context: StageContext,
    encoder: Encoder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    played = collect_episodes(start, family.tasks("train"), CollectConfig(tasks=3, max_turns=2), context)
    transitions = extract(played, family, CollectConfig().cleaning, 0)[0]
    config = RwmlConfig(
        max_updates=3,
        prompts=2,
        group_size=4,
        tau_d=0.01,
        max_tokens=8,
        guard_every=2,
        watch=WatchConfig(window=2, idle_updates=2),
        learner=LearnerConfig(learning_rate=1e-4),
    )
    result = midtrain_world_model(start, transitions, 0.1, family.tasks("valid_seen"), config, context, encoder)
    # A random model hardly ever ends in eight tokens, and is never right.
    assert all(row["truncated_predictions"] > 0.5 and row["mixed_groups"] == 0.0 for row in result.curve)
    warned = [record.getMessage() for record in caplog.records if record.getMessage().startswith("rwml, update 1: ")]
    assert [row["warnings"] for row in result.curve][:2] == [0.0, float(len(warned))]
    assert any("raise rwml.max_tokens (now 8)" in text for text in warned)
    assert any("never rewarded: raise rwml.tau_d (now 0.01)" in text for text in warned)
    assert any("the returns of a group did not differ: raise rwml.temperature" in text for text in warned)
    assert len(warned) == 3
