"""Objects of the stages as tables, and back."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from worldwise.stages.subsample import TransitionScore


def scores_to_frame(scores: Sequence[TransitionScore]) -> pd.DataFrame:
    """One row a transition: `transition_id`, `kind`, lists `distances` and `exact` with one value per try."""
    return pd.DataFrame(
        {
            "transition_id": [score.transition_id for score in scores],
            "kind": [score.kind for score in scores],
            "distances": [list(score.distances) for score in scores],
            "exact": [list(score.exact) for score in scores],
        }
    )


def scores_from_frame(frame: pd.DataFrame) -> list[TransitionScore]:
    """The scores that `scores_to_frame` wrote."""
    columns = (frame[name].tolist() for name in ("transition_id", "kind", "distances", "exact"))
    return [
        TransitionScore(name, kind, tuple(float(value) for value in distances), tuple(bool(value) for value in exact))
        for name, kind, distances, exact in zip(*columns, strict=True)
    ]
