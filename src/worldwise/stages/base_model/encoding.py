"""Played episodes as token rows with a loss weight per token."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worldwise.agents.agent import Agent
from worldwise.episodes.sequences import Role
from worldwise.stages.base_model.play import Transcript

TAGS_OF_PREDICTION = ("<next_state>", "</next_state>")


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
        agent: an agent of style `plain` with the base model's tokenizer.
        observation_weight: loss weight of the world's own text in the conversation.
        prediction_weight: loss weight of the text inside `<next_state>`.
    """

    def __init__(self, agent: Agent, observation_weight: float, prediction_weight: float) -> None:
        self._agent = agent
        self._observation_weight = observation_weight
        self._prediction_weight = prediction_weight
        self._form = {*agent.stop_ids, *(token for tag in TAGS_OF_PREDICTION for token in agent.encode(tag))}

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
        weights[len(asked) :] = [1.0 if int(token) in self._form else self._prediction_weight for token in answer]
        return Row(np.concatenate([asked, answer]).astype(np.int32), weights)

    def _conversation(self, transcript: Transcript, turns: int) -> Row:
        said = self._agent.transcript(transcript.observations[:turns], transcript.actions[:turns])
        weights = np.zeros(len(said.token_ids), np.float32)
        weights[said.roles == Role.OBSERVATION] = self._observation_weight
        weights[(said.roles == Role.RESPONSE) & ~np.isin(said.turns, sorted(transcript.refused))] = 1.0
        weights[0] = 0.0
        return Row(said.token_ids, weights)
