"""What must hold in every record of play."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from worldwise.episodes.record import INFRASTRUCTURE_FAILURES, Episode, Termination, Turn

_SLACK = 1e-5
"""Nats by which a log-probability may exceed 0, or an entropy fall below it, from rounding."""


class EpisodeError(ValueError):
    """A record contradicts itself. The message names the episode, the turn and what is wrong."""


def check_episode(episode: Episode) -> None:
    """Checks a record.

    Raises:
        EpisodeError: something does not hold; the message lists all of it.
    """
    problems = episode_problems(episode)
    if problems:
        raise EpisodeError(f"episode {episode.episode_id}: " + "; ".join(problems))


def episode_problems(episode: Episode) -> list[str]:
    """Everything that does not hold in a record; empty if it is sound."""
    problems = list(_whole(episode))
    for position, turn in enumerate(episode.turns):
        problems += [f"turn {position}: {problem}" for problem in _turn(turn, position, episode)]
    return problems


def _whole(episode: Episode) -> Iterator[str]:
    broken = episode.termination in INFRASTRUCTURE_FAILURES
    if episode.reward_valid == broken:
        yield f"reward_valid={episode.reward_valid} does not go with termination {episode.termination}"
    if not episode.turns and not broken:
        yield f"no turns, though it ended as {episode.termination}"
    if episode.success != (episode.termination is Termination.SOLVED):
        yield f"success={episode.success} does not go with termination {episode.termination}"
    if not 0.0 <= episode.progress <= 1.0:
        yield f"progress={episode.progress} is outside of 0..1"
    if episode.context not in ("conversation", "window"):
        yield f"context={episode.context!r} is neither conversation nor window"
    if not episode.temperature >= 0.0:
        yield f"temperature={episode.temperature} is below 0"
    if not episode.turns or broken:
        return
    last = episode.turns[-1]
    ending = {
        Termination.SOLVED: last.terminated,
        Termination.FAILED: last.terminated,
        Termination.TURN_LIMIT: last.truncated and not last.terminated,
        Termination.TOKEN_LIMIT: not last.terminated and not last.truncated,
    }
    if not ending[episode.termination]:
        yield (
            f"termination {episode.termination} does not go with terminated={last.terminated}, "
            f"truncated={last.truncated} of the last turn"
        )


def _turn(turn: Turn, position: int, episode: Episode) -> Iterator[str]:
    if turn.index != position:
        yield f"index={turn.index} instead of {position}"
    if not turn.restart and (position == 0 or episode.context == "window"):
        yield "its context must restart"
    if not len(turn.context_ids):
        yield "no context"
    if episode.restricted and turn.admissible is None:
        yield "decoding was restricted, and the admissible commands are missing"
    if position + 1 < len(episode.turns):
        if turn.terminated or turn.truncated:
            yield "it ended the episode, and there are more turns"
        if turn.next_observation != episode.turns[position + 1].observation:
            yield "its next observation is not the next turn's observation"
    yield from _arrays(turn)
    for prediction in turn.predictions:
        if prediction.horizon < 1:
            yield f"a prediction has horizon {prediction.horizon}, below 1"
        if len(prediction.token_ids) != len(prediction.logprobs):
            yield "a prediction has another number of log-probabilities than tokens"


def _arrays(turn: Turn) -> Iterator[str]:
    tokens = len(turn.response_ids)
    if tokens == 0:
        yield "no response tokens"
    for name, dtype, values in (
        ("context_ids", np.int32, turn.context_ids),
        ("response_ids", np.int32, turn.response_ids),
        ("logprobs", np.float32, turn.logprobs),
        ("entropies", np.float32, turn.entropies),
    ):
        if values.dtype != dtype or values.ndim != 1:
            yield f"{name} is {values.dtype} with {values.ndim} axes instead of {np.dtype(dtype)} with one"
    for name, values in (("logprobs", turn.logprobs), ("entropies", turn.entropies)):
        if len(values) != tokens:
            yield f"{name} has {len(values)} values for {tokens} tokens"
        if not np.isfinite(values).all():
            yield f"{name} holds a value that is not finite"
    if tokens and len(turn.logprobs) and float(turn.logprobs.max()) > _SLACK:
        yield "a log-probability is above 0"
    if tokens and len(turn.entropies) and float(turn.entropies.min()) < -_SLACK:
        yield "an entropy is below 0"
    for name, span, length in (
        ("observation_span", turn.observation_span, len(turn.context_ids)),
        ("action_span", turn.action_span, tokens),
    ):
        if not 0 <= span[0] <= span[1] <= length:
            yield f"{name}={span} is outside of 0..{length}"
    if not np.isfinite(turn.reward):
        yield f"reward={turn.reward} is not finite"
    if not 0.0 <= turn.progress <= 1.0:
        yield f"progress={turn.progress} is outside of 0..1"
