"""What the episode browser shows of an episode: turns, trained tokens in colour, predictions beside what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worldwise.algorithms.rewards.text import exact
from worldwise.episodes.record import Episode, Turn
from worldwise.stages.policy_rows import EstimatorConfig, turn_advantages

Decode = Callable[[Sequence[int]], str]
"""Token ids -> text."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token as shown.

    Attributes:
        text: its text.
        style: `context` (never trained), `up`, `down` (trained with positive, negative advantage) or
            `sampled` (sampled, but nothing pulls at it).
        note: log-probability and entropy of a sampled token, empty otherwise.
    """

    text: str
    style: str
    note: str


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn as shown; see `episodes.record.Turn`.

    Attributes:
        turn: the record.
        tokens: the response's tokens.
        context: the text put before the response, as the model saw it.
        advantage: of the turn, None where no update used it.
        predictions: (text, score, exactly right) of each prediction of the next observation.
    """

    turn: Turn
    tokens: tuple[Token, ...]
    context: str
    advantage: float | None
    predictions: tuple[tuple[str, float | None, bool], ...]


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """One episode as shown.

    Attributes:
        episode: the record.
        turns: its turns.
    """

    episode: Episode
    turns: tuple[TurnView, ...]

    @property
    def title(self) -> str:
        """A line for the list of episodes."""
        outcome = "solved" if self.episode.success else self.episode.termination.value.replace("_", " ")
        return f"{self.episode.task_type}: {outcome} after {len(self.episode.turns)} turns"


def view(episode: Episode, decode: Decode, advantages: Sequence[float] | None = None) -> EpisodeView:
    """Prepare an episode for showing.

    Args:
        episode: the record.
        decode: of the tokenizer of the model that acted.
        advantages: one per turn, if an update used this episode.

    Raises:
        ValueError: another number of advantages than turns.
    """
    if advantages is not None and len(advantages) != len(episode.turns):
        raise ValueError(
            f"{len(advantages)} advantages for {len(episode.turns)} turns of {episode.episode_id}: give one per turn"
        )
    return EpisodeView(
        episode=episode,
        turns=tuple(
            _turn(turn, decode, None if advantages is None else float(advantages[index]))
            for index, turn in enumerate(episode.turns)
        ),
    )


def training_views(
    episodes: Sequence[Episode],
    estimator: EstimatorConfig,
    state_key: Callable[[str], str],
    decode: Decode,
    limit: int,
) -> list[EpisodeView]:
    """A choice of training episodes with the advantages that the update gave their turns.

    Args:
        episodes: whole groups, of one iteration or several; those of the last iteration are shown.
        estimator: the settings under which they were trained on.
        state_key: `WorldFamily.canonical_state`.
        decode: of the tokenizer of the model that acted.
        limit: most episodes.
    """
    last = max((episode.iteration for episode in episodes), default=0)
    trained = [episode for episode in episodes if episode.iteration == last]
    advantages = turn_advantages(trained, estimator, state_key)
    by_id = {episode.episode_id: values for episode, values in zip(trained, advantages, strict=True)}
    chosen = choose([episode for episode in trained if episode.turns], limit)
    return [view(episode, decode, by_id[episode.episode_id]) for episode in chosen]


def choose(episodes: Sequence[Episode], limit: int) -> list[Episode]:
    """A fixed choice of at most `limit` episodes that shows solved and unsolved ones of every type.

    Task types take turns, and within a type solved and unsolved episodes do, each in the order given.
    """
    queues: dict[tuple[str, bool], list[Episode]] = {}
    for episode in episodes:
        queues.setdefault((episode.task_type, episode.success), []).append(episode)
    chosen: list[Episode] = []
    depth = 0
    while len(chosen) < min(limit, len(episodes)):
        for key in sorted(queues, key=lambda key: (not key[1], key[0])):
            if depth < len(queues[key]) and len(chosen) < limit:
                chosen.append(queues[key][depth])
        depth += 1
    return chosen


def _turn(turn: Turn, decode: Decode, advantage: float | None) -> TurnView:
    pull = "sampled" if not advantage else ("up" if advantage > 0 else "down")
    tokens = tuple(
        Token(decode([int(token)]), pull, f"log-prob {logprob:.2f}, entropy {entropy:.2f}")
        for token, logprob, entropy in zip(turn.response_ids, turn.logprobs, turn.entropies, strict=True)
    )
    return TurnView(
        turn=turn,
        tokens=tokens,
        context=decode([int(token) for token in turn.context_ids]),
        advantage=advantage,
        predictions=tuple(
            (prediction.text, prediction.score, exact(prediction.text, turn.next_observation))
            for prediction in turn.predictions
            if prediction.horizon == 1
        ),
    )
