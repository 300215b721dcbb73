"""The record of play: what the engine saw and said, turn by turn.

Token ids are kept as they went into and came out of the model; nothing here is ever decoded
and encoded again. Training rows are derived from the record (`sequences.py`), never stored as truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]


class Termination(StrEnum):
    """Why an episode ended. Only the first four are the agent's own doing."""

    SOLVED = "solved"
    FAILED = "failed"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIMEOUT = "timeout"
    WORLD_ERROR = "world_error"
    ENGINE_ERROR = "engine_error"


INFRASTRUCTURE_FAILURES = frozenset({Termination.TIMEOUT, Termination.WORLD_ERROR, Termination.ENGINE_ERROR})
"""Terminations that say nothing about the agent: their reward is never valid."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's own text for the observation `horizon` turns ahead (1 = the next one)."""

    horizon: int
    text: str
    token_ids: IntArray
    logprobs: FloatArray
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """observation -> response -> next observation.

    Attributes:
        index: 0-based position in the episode.
        observation: the world's raw text before the response.
        context_ids: int32 [C], tokens put before the response. With `restart` they are the whole
            context, otherwise they continue the previous turn's context and response.
        restart: the context was built from scratch (first turn; every turn of a `window` context;
            where a chat template breaks the prefix).
        observation_span: [start, end) inside `context_ids` of the observation's own tokens,
            without template or command list; (0, 0) if it is not in them as such.
        response_ids: int32 [R], tokens sampled in this turn, the end token included if it was sampled.
        logprobs: float32 [R], nats, of the sampled tokens under the distribution they were sampled
            from (after temperature, top-p, min-p and any restriction to admissible commands).
        entropies: float32 [R], nats, of those distributions.
        response_text: decoded response without end token (for people and parsers).
        action: the command parsed out of the response, as the world received it.
        action_span: [start, end) inside `response_ids` of the action's tokens.
        format_valid: the response had the demanded form.
        finished: the response ended by itself (False: cut at the token limit).
        accepted: the world understood the action.
        reward: the world's reward for it.
        progress: the goal's share reached after it, 0..1.
        next_observation: the world's raw text after it.
        terminated, truncated: as `World.step` said; truncated also where the scheduler's own turn limit cut.
        admissible: the admissible actions before it, kept only where decoding was restricted to
            them or the prompt listed them.
        predictions: predictions made in this turn, if any.
    """

    index: int
    observation: str
    context_ids: IntArray
    restart: bool
    observation_span: tuple[int, int]
    response_ids: IntArray
    logprobs: FloatArray
    entropies: FloatArray
    response_text: str
    action: str
    action_span: tuple[int, int]
    format_valid: bool
    finished: bool
    accepted: bool
    reward: float
    progress: float
    next_observation: str
    terminated: bool
    truncated: bool
    admissible: tuple[str, ...] | None = None
    predictions: tuple[Prediction, ...] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode: its turns and where they came from.

    Attributes:
        episode_id: unique within a collection, `<stage>/<iteration>/<task_id>/<sample>`.
        group_id: the episodes of one task in one iteration share it.
        world, task_id, task_type, split: the task that was played.
        sample: index within the group.
        iteration: iteration of the collecting stage (0 for plain collection and evaluation).
        seed: the seed everything random in the episode derives from.
        model_version: name of the weights that acted.
        turns: at least one unless an infrastructure failure came first.
        termination: typed reason.
        success: the task was solved.
        progress: final progress, 0..1.
        reward_valid: False after an infrastructure failure; such an episode is never a zero reward.
        temperature: sampling temperature of the responses; 0 = greedy.
        restricted: decoding was restricted to admissible commands.
        context: `conversation` or `window`.
        world_seed: the seed the world was reset with; the episodes of a group share it.
    """

    episode_id: str
    group_id: str
    world: str
    task_id: str
    task_type: str
    split: str
    sample: int
    iteration: int
    seed: int
    model_version: str
    turns: tuple[Turn, ...]
    termination: Termination
    success: bool
    progress: float
    reward_valid: bool
    temperature: float
    restricted: bool
    context: str
    extras: dict[str, float] = field(default_factory=dict)
    world_seed: int = 0

    @property
    def total_reward(self) -> float:
        """Undiscounted sum of the turn rewards."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def sampled_tokens(self) -> int:
        """Tokens generated by the model in this episode."""
        return int(sum(len(turn.response_ids) for turn in self.turns))
