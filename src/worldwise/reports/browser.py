"""What the episode browser shows of an episode: turns, trained tokens in colour, predictions beside what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from worldwise.algorithms.rewards.text import exact
from worldwise.episodes.record import Episode, Turn
from worldwise.stages.estimators import EstimatorConfig, turn_advantages

Decode = Callable[[Sequence[int]], str]
"""Token ids -> text."""

SHELF_CHARACTERS = 300_000
"""About the most characters of the page that one shelf takes: nine shelves stay below 3 MB, whatever the prompts."""

_TOKEN_MARKUP, _TURN_MARKUP = 34, 420
"""Characters that a token and a turn take beside their texts."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token as shown.

    Attributes:
        text: its text.
        style: `up`, `down` (trained with positive, negative advantage) or `sampled` (sampled, but nothing
            pulls at it).
        note: log-probability and entropy in nats; empty where both are 0, as under greedy decoding.
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
        note: what else its line in the list says.
    """

    episode: Episode
    turns: tuple[TurnView, ...]
    note: str = ""

    @property
    def title(self) -> str:
        """A line for the list of episodes."""
        outcome = "solved" if self.episode.success else self.episode.termination.value.replace("_", " ")
        return f"{self.episode.task_type}: {outcome} after {len(self.episode.turns)} turns"


@dataclass(frozen=True, slots=True)
class Shelf:
    """Episodes that are shown together.

    Attributes:
        title: what they are.
        note: which are shown, and of how many.
        views: the episodes.
    """

    title: str
    note: str
    views: tuple[EpisodeView, ...]


def evaluation_shelf(model: str, episodes: Iterable[Episode], decode: Decode, limit: int) -> Shelf:
    """A choice of a model's evaluation episodes, those with predictions if any have them.

    Args:
        model: as the report calls it.
        episodes: all of them.
        decode: of the tokenizer of the model that acted.
        limit: most episodes.
    """
    played = list(episodes)
    predicted = [episode for episode in played if any(turn.predictions for turn in episode.turns)]
    views = _fitting([view(episode, decode) for episode in choose(predicted or played, limit)])
    aside = ", with the model's own prediction beside what happened" if predicted else ""
    note = f"{len(views)} of {len(played)} episodes, solved and unsolved ones of every task type in turn{aside}."
    return Shelf(f"Evaluation of {model}", note, views)


def training_shelf(
    policy: str,
    episodes: Iterable[Episode],
    estimator: EstimatorConfig | None,
    state_key: Callable[[str], str],
    decode: Decode,
    limit: int,
) -> Shelf:
    """A choice of training episodes with the advantages that the update gave their turns.

    Episodes that pull at the weights come first: where a whole group ended alike there is little to see.

    Args:
        policy: as the report calls it.
        episodes: whole groups, of one iteration or several; those of the last iteration are shown.
        estimator: the settings under which they were trained on; None where advantages cannot be told from the
            episodes alone (a critic, a KL in the reward).
        state_key: `WorldFamily.canonical_state`.
        decode: of the tokenizer of the model that acted.
        limit: most episodes.
    """
    trained = _last_iteration(episodes)
    shown = [episode for episode in trained if episode.turns]
    iteration = trained[0].iteration if trained else 0
    title = f"Last iteration of policy RL: {policy}"
    which = f"episodes of the last iteration (number {iteration}, counted from 0), as the policy played them before its"
    if estimator is None:
        views = _fitting([view(each, decode, None, _in_group(each, trained)) for each in choose(shown, limit)])
        note = (
            f"{len(views)} of {len(trained)} {which} last update. Their advantages took more than the episodes to make."
        )
        return Shelf(title, note, views)
    advantages = turn_advantages(trained, estimator, state_key)
    by_id = {episode.episode_id: values for episode, values in zip(trained, advantages, strict=True)}
    pulling = [episode for episode in shown if any(by_id[episode.episode_id])]
    idle = [episode for episode in shown if not any(by_id[episode.episode_id])]
    chosen = choose(pulling, limit)
    chosen += choose(idle, limit - len(chosen))
    views = _fitting([view(each, decode, by_id[each.episode_id], _in_group(each, trained)) for each in chosen])
    note = (
        f"{len(views)} of {len(trained)} {which} last update; {len(idle)} of them taught nothing. Advantages: "
        f"{estimator.algorithm}, normalize {estimator.normalize}, statistics per {estimator.statistics}."
    )
    return Shelf(title, note, views)


def view(episode: Episode, decode: Decode, advantages: Sequence[float] | None = None, note: str = "") -> EpisodeView:
    """Prepare an episode for showing.

    Args:
        episode: the record.
        decode: of the tokenizer of the model that acted.
        advantages: one per turn, if an update used this episode.
        note: what else to say of it.

    Raises:
        ValueError: another number of advantages than turns.
    """
    if advantages is not None and len(advantages) != len(episode.turns):
        raise ValueError(
            f"{len(advantages)} advantages for {len(episode.turns)} turns of {episode.episode_id}: give one per turn"
        )
    turns = tuple(
        _turn(turn, decode, None if advantages is None else float(advantages[index]))
        for index, turn in enumerate(episode.turns)
    )
    return EpisodeView(episode, turns, note)


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


def token_texts(ids: Sequence[int], decode: Decode) -> list[str]:
    """What each token adds to the text. A character of several tokens stands with the last of them.

    Args:
        ids: tokens of one response.
        decode: of their tokenizer.
    """
    texts: list[str] = []
    shown = ""
    for count in range(1, len(ids) + 1):
        text = decode(ids[:count])
        unfinished = text.endswith("\N{REPLACEMENT CHARACTER}") and count < len(ids)
        texts.append("" if unfinished else text[len(shown) :])
        shown = shown if unfinished else text
    return texts


def _last_iteration(episodes: Iterable[Episode]) -> list[Episode]:
    """The episodes of the highest iteration, never more than two iterations at once in memory."""
    kept: list[Episode] = []
    for episode in episodes:
        if kept and episode.iteration > kept[0].iteration:
            kept = []
        if not kept or episode.iteration == kept[0].iteration:
            kept.append(episode)
    return kept


def _in_group(episode: Episode, others: Sequence[Episode]) -> str:
    group = [other for other in others if other.group_id == episode.group_id and other.reward_valid]
    return f"{sum(other.success for other in group)} of {len(group)} in its group solved"


def _fitting(views: Sequence[EpisodeView]) -> tuple[EpisodeView, ...]:
    """The views that `SHELF_CHARACTERS` has room for, one at least, in their order."""
    kept: list[EpisodeView] = []
    room = SHELF_CHARACTERS
    for each in views:
        size = sum(map(_characters, each.turns))
        if size <= room or not kept:
            kept.append(each)
            room -= size
    return tuple(kept)


def _characters(shown: TurnView) -> int:
    texts = [shown.context, shown.turn.next_observation, *(text for text, _, _ in shown.predictions)]
    tokens = sum(_TOKEN_MARKUP + len(token.text) + len(token.note) for token in shown.tokens)
    return _TURN_MARKUP + sum(map(len, texts)) + tokens


def _turn(turn: Turn, decode: Decode, advantage: float | None) -> TurnView:
    pull = "sampled" if not advantage else ("up" if advantage > 0 else "down")
    texts = token_texts([int(token) for token in turn.response_ids], decode)
    tokens = tuple(
        Token(text, pull, f"log-prob {logprob:.2f}, entropy {max(entropy, 0.0):.2f}" if logprob or entropy else "")
        for text, logprob, entropy in zip(texts, turn.logprobs, turn.entropies, strict=True)
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
