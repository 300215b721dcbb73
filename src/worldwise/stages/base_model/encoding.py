"""Played episodes as token rows with a loss weight per token."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worldwise.agents.agent import Agent
from worldwise.agents.parsing import END_NEXT_STATE, NEXT_STATE
from worldwise.episodes.sequences import Role
from worldwise.stages.base_model.play import Transcript


@dataclass(frozen=True, slots=True)
class Row:
    """One training row.

    Attributes:
        token_ids: int32 [T].
        weights: float32 [T], weight of the loss of predicting each token (the first is always 0).
    """

    token_ids: NDArray[np.int32]
    weights: NDArray[np.float32]


class PlayEncoder:
    """Transcripts -> rows, in the very tokens in which the agent plays.

    Args:
        agent: renders the rows; one whose conversations grow by appending.
        observation_weight: loss weight of the world's own text in the conversation.
        prediction_weight: loss weight of the text inside `<next_state>`.
    """

    def __init__(self, agent: Agent, observation_weight: float, prediction_weight: float) -> None:
        self._agent = agent
        self._observation_weight = observation_weight
        self._prediction_weight = prediction_weight

    def episode(self, transcript: Transcript) -> Row:
        """The whole episode: loss on the commands and their end tokens, refused ones apart."""
        return self._conversation(transcript, len(transcript.actions))

    def prediction(self, transcript: Transcript, rng: random.Random) -> Row:
        """The episode up to a random action, then the question what comes next and its answer."""
        turn = rng.randrange(len(transcript.actions))
        told = self._conversation(transcript, turn + 1)
        asked = self._agent.predict_prompt(told.token_ids)
        answer = self._agent.prediction_answer_ids(transcript.observations[turn + 1])
        weights = np.zeros(len(asked) + len(answer), np.float32)
        weights[: len(told.weights)] = told.weights
        weights[len(asked) :] = np.where(form_tokens(self._agent, answer), 1.0, self._prediction_weight)
        return Row(np.concatenate([asked, answer]).astype(np.int32), weights)

    def _conversation(self, transcript: Transcript, turns: int) -> Row:
        said = self._agent.transcript(transcript.observations[:turns], transcript.actions[:turns])
        weights = np.zeros(len(said.token_ids), np.float32)
        weights[said.roles == Role.OBSERVATION] = self._observation_weight
        weights[(said.roles == Role.RESPONSE) & ~np.isin(said.turns, sorted(transcript.refused))] = 1.0
        weights[0] = 0.0
        return Row(said.token_ids, weights)


def form_tokens(agent: Agent, answer: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which tokens of a prediction's answer make its form: bool [A].

    Those that hold a character outside of the predicted text (tags, an empty thought, and what a tokenizer merges
    with them), and the end token.

    Args:
        agent: whose `prediction_answer_ids` it is.
        answer: int32 [A].
    """
    ends = np.asarray([len(agent.decode(answer[:count])) for count in range(1, len(answer))])
    starts = np.concatenate([[0], ends[:-1]])
    text = agent.decode(answer)
    first, last = text.index(NEXT_STATE) + len(NEXT_STATE), text.rindex(END_NEXT_STATE)
    return np.append((starts < first) | (ends > last), True)
