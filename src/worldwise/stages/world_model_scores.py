"""Scores of predicted observations. Pure: pairs of texts and their distances in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worldwise.algorithms.rewards.text import exact, text_ratio
from worldwise.config import FrozenConfig
from worldwise.stages.intervals import Proportion, proportion


@dataclass(frozen=True, slots=True)
class PredictedPair:
    """One prediction beside what happened.

    Attributes:
        transition_id: which transition it is of.
        kind: the world's kind of the transition.
        split: split of its task.
        prediction: the predicted text, None where the response held none.
        observation: what the world really answered.
        distance: 1 - cos of the two embeddings, in [0, 2]; `inf` without prediction.
    """

    transition_id: str
    kind: str
    split: str
    prediction: str | None
    observation: str
    distance: float


class WorldModelScore(FrozenConfig):
    """How well a set of observations was predicted. A missing prediction counts as similarity 0.

    Attributes:
        similarity: mean cosine of the embeddings, in [-1, 1].
        text_ratio: mean of difflib's ratio 2M/(|a|+|b|) without its junk heuristic (which wrecks the
            ratio of texts over 200 characters), in [0, 1].
        exact: the same text, white space collapsed.
        parsed: the response held a prediction in its tags.
    """

    similarity: float
    text_ratio: float
    exact: Proportion
    parsed: Proportion


class WorldModelReport(FrozenConfig):
    """World-model scores of one model.

    Attributes:
        model: name of the weights.
        overall: all transitions.
        by_kind: by the world's kind of transition, sorted by name.
        by_split: by split of the task, sorted by name.
    """

    model: str
    overall: WorldModelScore
    by_kind: dict[str, WorldModelScore]
    by_split: dict[str, WorldModelScore]


def score_pairs(pairs: Sequence[PredictedPair]) -> WorldModelScore:
    """Scores of a set of pairs; zeros for an empty set."""
    count = max(len(pairs), 1)
    cosines = [0.0 if pair.prediction is None else 1.0 - min(pair.distance, 2.0) for pair in pairs]
    return WorldModelScore(
        similarity=sum(cosines) / count,
        text_ratio=sum(text_ratio(pair.prediction, pair.observation) for pair in pairs) / count,
        exact=proportion(exact(pair.prediction, pair.observation) for pair in pairs),
        parsed=proportion(pair.prediction is not None for pair in pairs),
    )


def report_world_model(model: str, pairs: Sequence[PredictedPair]) -> WorldModelReport:
    """Scores overall, by kind of transition and by split."""
    kinds = sorted({pair.kind for pair in pairs})
    splits = sorted({pair.split for pair in pairs})
    return WorldModelReport(
        model=model,
        overall=score_pairs(pairs),
        by_kind={kind: score_pairs([pair for pair in pairs if pair.kind == kind]) for kind in kinds},
        by_split={split: score_pairs([pair for pair in pairs if pair.split == split]) for split in splits},
    )
