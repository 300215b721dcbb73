"""What a world may answer at all: checked at every turn, since a world may be a program that others wrote."""

from __future__ import annotations

import math

from worldwise.worlds.contract import Info


class AnswerError(ValueError):
    """A world's answer is none. The message says what it is instead."""


def check_answer(observation: object, info: object, reward: object = 0.0) -> None:
    """An observation is text that UTF-8 can hold, a reward is a finite number, progress lies in 0..1.

    Raises:
        AnswerError: one of them is something else.
    """
    if not isinstance(observation, str):
        raise AnswerError(f"the observation is {_shown(observation)}: a world answers with text")
    try:
        observation.encode()
    except UnicodeEncodeError as error:
        raise AnswerError(f"the observation is {_shown(observation)}, which is no text ({error.reason})") from None
    if not isinstance(info, Info):
        raise AnswerError(f"the info is {_shown(info)}: a world answers with an Info")
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        raise AnswerError(f"the reward is {_shown(reward)}: it must be a finite number")
    if not 0.0 <= info.progress <= 1.0:
        raise AnswerError(f"progress is {_shown(info.progress)}: it must lie in 0..1")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
