"""Asking the acting model what its action will bring, from the cached context, while the action is on its way.

World-In-Agent of Role-Agent, see docs/modules.md. The answers change nothing in play: the slots are as they were, and
every answer has a random stream of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worldwise.agents.agent import Agent
from worldwise.episodes.record import Prediction
from worldwise.generation.protocol import Completion, Engine, Request, Sampling

logger = logging.getLogger(__name__)

_NO_IDS, _NO_LOGPROBS = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Question:
    """A response that was just generated.

    Attributes:
        slot: its context, the response included.
        finished: it ended with a stop token.
        seed: of the answer.
    """

    slot: int
    finished: bool
    seed: int


@dataclass(slots=True)
class Foresight:
    """Asks for the next observations of a batch.

    Attributes:
        engine: with the slots.
        agent: prompts and parsing.
        horizon: observations to predict, at least 1.
        max_tokens: of an answer.
        asked, tokens: answers and their tokens so far.
        failed: the engine failed at the last batch.
    """

    engine: Engine
    agent: Agent
    horizon: int
    max_tokens: int
    asked: int = 0
    tokens: int = 0
    failed: bool = False

    def ask(self, questions: Sequence[Question], sampling: Sampling) -> list[tuple[Prediction, ...]]:
        """The predictions of each, `horizon` of them in order; none where the slot has no room for an answer.

        An observation that the answer does not hold in the demanded form has an empty text. Tokens and
        log-probabilities of the whole answer stand with the first. An engine that fails costs this batch's
        predictions alone.

        Args:
            questions: one a slot.
            sampling: of the responses; answers have `max_tokens` of their own.
        """
        if not questions:
            return []
        own = sampling.model_copy(update={"max_tokens": self.max_tokens})
        requests = [
            Request(
                question.slot,
                self.agent.predict_suffix(question.finished, self.horizon).tolist(),
                question.seed,
                keep=False,
            )
            for question in questions
        ]
        try:
            answers = self.engine.generate(requests, own, self.agent.stop_ids)
        except Exception:
            if self.failed:
                raise
            self.failed = True
            logger.exception("the engine failed at predictions; the turns of this batch have none")
            return [()] * len(questions)
        self.failed = False
        return [self._read(answer) for answer in answers]

    def _read(self, answer: Completion) -> tuple[Prediction, ...]:
        if not len(answer.token_ids):
            return ()
        self.asked += 1
        self.tokens += len(answer.token_ids)
        texts = self.agent.parse_predictions(self.agent.decode(answer.token_ids), self.horizon)
        return tuple(
            Prediction(
                horizon=number,
                text=text or "",
                token_ids=answer.token_ids if number == 1 else _NO_IDS,
                logprobs=answer.logprobs if number == 1 else _NO_LOGPROBS,
            )
            for number, text in enumerate(texts, start=1)
        )
