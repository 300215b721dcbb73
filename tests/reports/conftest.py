"""Hand-made results for the tests of reports."""

from __future__ import annotations

import numpy as np
import pytest

from worldwise.episodes.record import Episode, Prediction, Termination, Turn
from worldwise.reports.results import Results
from worldwise.stages.acting_scores import ActingReport, ActingScore
from worldwise.stages.difficulty import DifficultyReport
from worldwise.stages.intervals import Proportion, proportion
from worldwise.stages.world_model_scores import PredictedPair, report_world_model

NASTY = "<script>alert('x')</script> & | \"quoted\""


def share(successes: int, count: int) -> Proportion:
    return proportion([True] * successes + [False] * (count - successes))


def score(successes: int, count: int) -> ActingScore:
    return ActingScore(
        success=share(successes, count),
        success_by_type={
            "look": share(successes // 2, count // 2),
            "pick": share(successes - successes // 2, count // 2),
        },
        mean_turns=20.0,
        mean_turns_solved=9.5,
        mean_progress=0.4,
        invalid_rate=0.02,
        nothing_rate=0.1,
        repeated_rate=0.2,
        wasted_rate=0.3,
        terminations={"solved": successes, "turn_limit": count - successes},
        invalid_episodes=0,
        sampled_tokens=80.0,
    )


def acting(name: str, seen: int, unseen: int) -> ActingReport:
    scores = {"valid_seen": {"0": score(seen, 200)}, "valid_unseen": {"0": score(unseen, 200)}}
    return ActingReport(model=name, restricted=False, scores=scores)


def pairs(right: int) -> list[PredictedPair]:
    return [
        PredictedPair(f"e#{i}", "go" if i % 2 else "take", "valid_seen", "yes" if i < right else "no", "yes", 0.0)
        for i in range(20)
    ]


@pytest.fixture
def nasty() -> str:
    """A text that would break a page or a table."""
    return NASTY


@pytest.fixture
def results() -> Results:
    """Base, RWML, RL alone and the whole pipeline, with everything that a run leaves."""
    return Results(
        acting={
            "policy": acting("policy", 120, 100),
            "base": acting("base", 40, 38),
            "rl_only": acting("rl_only", 118, 102),
            "rwml": acting("rwml", 44, 36),
            "random": acting("random", 2, 1),
        },
        world_model={"base": report_world_model("base", pairs(5)), "rwml": report_world_model("rwml", pairs(15))},
        curves={
            "policy": [{"step": float(i), "success": 0.2 + i / 100, "reward": 0.2, "entropy": 0.3} for i in range(50)],
            "rwml": [{"step": 0.0, "reward": 0.4, "mixed_groups": 0.6, "guard_success": 0.2}],
        },
        difficulty=DifficultyReport(
            tasks_main=90,
            tasks_auxiliary=10,
            transitions_main=900,
            transitions_auxiliary=100,
            tries=10,
            tau_d=0.02,
            tau_easy=0.0,
            easy_share=0.28,
            in_band=True,
            mean_pass_rate=0.1,
            exact_rate=0.05,
            parse_rate=0.99,
            kept=670,
            kept_easy=25,
            easy_by_kind={"go": (100, 400), "take": (152, 500)},
        ),
        transition_counts={"duplicates": 12, "parse_failure": 3},
        stages={"policy": {"seconds": 300.0, "iterations": 40.0}},
        facts={"world": "household", "note": NASTY},
    )


@pytest.fixture
def episode() -> Episode:
    """Two turns; the world and the model both speak HTML."""

    def turn(index: int, prediction: str) -> Turn:
        return Turn(
            index=index,
            observation=NASTY,
            context_ids=np.asarray([1, 2], dtype=np.int32),
            restart=index == 0,
            observation_span=(0, 1),
            response_ids=np.asarray([3, 4], dtype=np.int32),
            logprobs=np.asarray([-0.5, -1.0], dtype=np.float32),
            entropies=np.asarray([0.25, 0.75], dtype=np.float32),
            response_text=NASTY,
            action=NASTY,
            action_span=(0, 1),
            format_valid=True,
            finished=True,
            accepted=True,
            reward=0.0,
            progress=0.0,
            next_observation="You see a mug.",
            terminated=False,
            truncated=index == 1,
            predictions=(Prediction(1, prediction, np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.float32), 0.5),),
        )

    return Episode(
        episode_id="policy/0/task/0",
        group_id="policy/0/task",
        world="household",
        task_id="task",
        task_type="pick",
        split="train",
        sample=0,
        iteration=0,
        seed=0,
        model_version="policy",
        turns=(turn(0, "You see a  mug."), turn(1, NASTY)),
        termination=Termination.TURN_LIMIT,
        success=False,
        progress=0.0,
        reward_valid=True,
        temperature=1.0,
        restricted=False,
        context="conversation",
    )
