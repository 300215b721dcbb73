"""Scores of predictions and distances of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from worldwise.algorithms.rewards.embedding import binary_reward
from worldwise.algorithms.rewards.text import collapse, exact, text_ratio
from worldwise.stages.encoder import distances
from worldwise.stages.world_model_scores import PredictedPair, report_world_model, score_pairs


class Axes:
    """Every text has a fixed direction in the plane; counts how many texts it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.memory: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        angles = {"east": 0.0, "north": math.pi / 2, "west": math.pi, "northeast": math.pi / 4}
        self.asked += texts
        return np.asarray([[math.cos(angles[t]), math.sin(angles[t])] for t in texts], dtype=np.float32)


def pair(prediction: str | None, observation: str, distance: float, kind: str = "go") -> PredictedPair:
    return PredictedPair("e#0", kind, "valid_seen", prediction, observation, distance)


def test_distances_are_one_minus_cosine() -> None:
    found = distances(Axes(), ["east", "east", "east", "northeast"], ["east", "north", "west", "north"])
    assert found.tolist() == pytest.approx([0.0, 1.0, 2.0, 1 - math.sqrt(0.5)], abs=1e-6)


def test_rewards_are_binary_and_strict() -> None:
    assert binary_reward(np.asarray([0.0, 0.199, 0.2, math.inf]), 0.2).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert binary_reward(np.asarray([2.0, 1.999]), 2.0).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="tau_d is 0"):
        binary_reward(np.asarray([0.0]), 0.0)


def test_a_missing_prediction_is_infinitely_far_and_never_embedded() -> None:
    encoder = Axes()
    found = distances(encoder, [None, "  ", "east"], ["east", "north", "north"])
    assert found.tolist() == [math.inf, math.inf, 1.0]
    assert encoder.asked == ["east", "north"]
    assert distances(encoder, [None], ["east"]).tolist() == [math.inf]
    with pytest.raises(ValueError, match="one target each"):
        distances(encoder, ["east"], [])


def test_white_space_does_not_count() -> None:
    assert collapse("  You  see\na mug. ") == "You see a mug."
    assert exact("You see\n a mug.", "You see a mug.")
    assert not exact("You see a cup.", "You see a mug.")
    assert not exact(None, "")


def test_text_ratio_is_difflibs_without_its_junk_rule() -> None:
    # 2 * matching / total: "abcd" and "abxd" share 3 of 4 characters each.
    assert text_ratio("abcd", "abxd") == 0.75
    assert text_ratio(None, "abcd") == 0.0
    # Over 200 characters the junk rule would drop the frequent letters altogether.
    long = "ab " * 100
    assert text_ratio(long, long + "c") > 0.99


def test_scores_average_pairs_and_missing_predictions_count_as_zero() -> None:
    score = score_pairs([pair("a", "a", 0.0), pair("b", "a", 0.5), pair(None, "a", math.inf)])
    assert score.similarity == pytest.approx((1.0 + 0.5 + 0.0) / 3)
    assert (score.exact.successes, score.exact.count) == (1, 3)
    assert score.parsed.share == pytest.approx(2 / 3)
    assert score.text_ratio == pytest.approx(1 / 3)
    assert score_pairs([]).similarity == 0.0


def test_report_splits_by_kind() -> None:
    found = report_world_model("base", [pair("a", "a", 0.0), pair("b", "a", 0.5, "take")])
    assert {kind: score.exact.share for kind, score in found.by_kind.items()} == {"go": 1.0, "take": 0.0}
    assert list(found.by_split) == ["valid_seen"]
    assert type(found).model_validate_json(found.model_dump_json()) == found
