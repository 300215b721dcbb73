"""Training sequences out of episodes, checked against hand-written rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from worldwise.episodes.record import Episode
from worldwise.episodes.sequences import allowed_ids, sequences_from_episode

Make = Callable[..., Episode]


@dataclass
class Shown:
    """What shows an observation behind a response."""

    ids: NDArray[np.int32]
    observation_span: tuple[int, int]


SHOWN = Shown(np.asarray([10, 99, 98, 11], dtype=np.int32), (1, 3))


def test_a_conversation_is_one_row(episode_of: Make) -> None:
    (row,) = sequences_from_episode(episode_of(turns=2), [0.5, -1.0])
    assert row.token_ids.tolist() == [10, 20, 11, 30, 1, 10, 21, 11, 31, 1]
    assert row.roles.tolist() == [0, 2, 0, 1, 1, 0, 2, 0, 1, 1]
    assert row.turns.tolist() == [0] * 5 + [1] * 5
    assert row.advantages.tolist() == [0, 0, 0, 0.5, 0.5, 0, 0, 0, -1, -1]
    assert row.logprobs.tolist() == pytest.approx([0, 0, 0, -0.1, -1e-3] * 2)
    assert (row.sequence_id, row.group_id) == ("collect/0/task-a/0#0", "collect/0/task-a")
    assert row.allowed is None


def test_a_restart_begins_a_row(episode_of: Make) -> None:
    first, second, third = episode_of().turns
    episode = replace(episode_of(), turns=(first, second, replace(third, restart=True)))
    rows = sequences_from_episode(episode, [1.0, 2.0, 3.0])
    assert [row.sequence_id for row in rows] == ["collect/0/task-a/0#0", "collect/0/task-a/0#2"]
    assert rows[1].token_ids.tolist() == [10, 22, 11, 32, 1]
    assert rows[1].advantages.tolist() == [0, 0, 0, 3, 3]


def test_outcomes_are_shown_where_the_row_would_end_without(episode_of: Make) -> None:
    first, second = episode_of(turns=2).turns
    window = replace(episode_of(), turns=(first, replace(second, restart=True)), context="window")
    rows = sequences_from_episode(window, [1.0, 1.0], following=lambda turn: SHOWN)
    assert rows[0].token_ids.tolist() == [10, 20, 11, 30, 1, 10, 99, 98, 11]
    assert rows[0].roles.tolist() == [0, 2, 0, 1, 1, 0, 2, 2, 0]
    assert rows[0].turns.tolist() == [0] * 5 + [1] * 4
    assert rows[0].logprobs[5:].tolist() == rows[0].advantages[5:].tolist() == [0] * 4
    # The last turn ended the episode: what it led to is not shown.
    assert rows[1].token_ids.tolist() == [10, 21, 11, 31, 1]
    (row,) = sequences_from_episode(episode_of(turns=2), [1.0, 1.0], following=lambda turn: SHOWN)
    assert len(row) == 10


def test_restricted_rows_know_what_was_allowed(episode_of: Make) -> None:
    plain = episode_of(turns=2)
    turns = tuple(replace(turn, admissible=(f"c{turn.index}",)) for turn in plain.turns)
    episode = replace(plain, turns=turns, restricted=True)
    said = {("c0",): [(30, 1), (30, 7, 1), (40, 1)], ("c1",): [(31, 1)]}
    (row,) = sequences_from_episode(episode, [0.0, 0.0], commands=lambda names: said[tuple(names)])
    assert row.allowed is not None
    found = [None if ids is None else ids.tolist() for ids in row.allowed]
    assert found == [None, None, None, [30, 40], [1, 7], None, None, None, [31], [1]]
    with pytest.raises(ValueError, match="allowed_sequences"):
        sequences_from_episode(episode, [0.0, 0.0])


def test_allowed_ids() -> None:
    sequences = [(5, 6, 1), (5, 1), (5, 6, 7, 1)]
    assert [ids.tolist() for ids in allowed_ids(sequences, [5, 6, 1])] == [[5], [1, 6], [1, 7]]
    assert [ids.tolist() for ids in allowed_ids(sequences, [5])] == [[5]]
    assert all(ids.dtype == np.int32 for ids in allowed_ids(sequences, [5, 1]))
    with pytest.raises(ValueError, match="token 8 at position 1"):
        allowed_ids(sequences, [5, 8])


def test_one_advantage_a_turn(episode_of: Make) -> None:
    with pytest.raises(ValueError, match="2 values for 3 turns"):
        sequences_from_episode(episode_of(), [0.0, 0.0])
