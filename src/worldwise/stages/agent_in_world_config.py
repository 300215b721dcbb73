"""Settings of Agent-In-World in policy RL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from worldwise.config import FrozenConfig
from worldwise.stages.encoder import EncoderConfig


class AgentInWorldConfig(FrozenConfig):
    """Agent-In-World of Role-Agent: failures are judged and remembered, and tasks like them are played more often.

    Attributes:
        eta: share of the weights in what is played, [0, 1]; 0 = uniform.
        judge: who says why an episode failed: the `model` itself, the world's `rules`, or `auto` = the model where the
            agent's style has words for it (the plain one has not). What a model says and cannot be read, the rules
            judge; both are counted.
        retrieval: who finds tasks like it among those that failed: the `model`, sentence embeddings of its query
            (`embedding`), the newest of the same `mode`, or `auto` = the model where it judges, else the mode.
        reflections: most failed groups an iteration that are judged, one episode of each.
        temperature: of the model's judgements (0.5 in the paper).
        max_tokens: of a judgement.
        candidates: most failures that the model or the encoder chooses from.
        retrieved: most tasks that are found for a failure.
        amount: weight that a found task gains.
        own_amount: weight that the failed task itself gains.
        decay: factor of all weights an iteration, [0, 1].
        cap: largest weight of a task.
        per_mode: most failures of one kind that are remembered.
        encoder: of `embedding`.
        weights: as they are, or `shuffled` among the tasks, a placebo that samples as unevenly.
    """

    eta: float = Field(0.5, ge=0.0, le=1.0)
    judge: Literal["auto", "model", "rules"] = "auto"
    retrieval: Literal["auto", "model", "embedding", "mode"] = "auto"
    reflections: int = Field(16, ge=1)
    temperature: float = Field(0.5, ge=0.0, le=10.0)
    max_tokens: int = Field(192, ge=16)
    candidates: int = Field(30, ge=1)
    retrieved: int = Field(5, ge=1)
    amount: float = Field(1.0, ge=0.0)
    own_amount: float = Field(0.5, ge=0.0)
    decay: float = Field(0.9, ge=0.0, le=1.0)
    cap: float = Field(10.0, gt=0.0)
    per_mode: int = Field(32, ge=1)
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    weights: Literal["own", "shuffled"] = "own"
