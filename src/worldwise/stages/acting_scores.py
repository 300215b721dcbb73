"""Scores of acting, counted from stored episodes. Pure: the same episodes give the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from worldwise.config import FrozenConfig
from worldwise.episodes.record import Episode
from worldwise.stages.intervals import Proportion, proportion


class ActingScore(FrozenConfig):
    """How a policy acted in a set of episodes.

    Episodes that ended in an infrastructure failure say nothing about the policy: they are counted in
    `invalid_episodes` and enter nothing else.

    Attributes:
        success: solved tasks.
        success_by_type: the same by task type, sorted by name.
        mean_turns, mean_turns_solved: turns an episode took; of solved ones alone (0 where none is).
        mean_progress: mean final share of the goal, in [0, 1].
        invalid_rate: share of turns whose response had not the demanded form.
        nothing_rate: share of turns whose action the world did not understand ("Nothing happens.").
        repeated_rate: share of turns with an understood action that was tried before in the episode,
            got the same answer then, and brought no progress.
        wasted_rate: share of turns that are one or the other of the last two.
        terminations: episodes by reason.
        invalid_episodes: episodes without a valid reward.
        sampled_tokens: mean generated tokens an episode.
    """

    success: Proportion
    success_by_type: dict[str, Proportion]
    mean_turns: float
    mean_turns_solved: float
    mean_progress: float
    invalid_rate: float
    nothing_rate: float
    repeated_rate: float
    wasted_rate: float
    terminations: dict[str, int]
    invalid_episodes: int
    sampled_tokens: float


class ActingReport(FrozenConfig):
    """Scores by split and sampling temperature.

    Attributes:
        model: name of the weights, or of the scripted policy.
        restricted: decoding was restricted to admissible commands (None for scripted policies).
        scores: split -> temperature as text ("0.4") -> score.
    """

    model: str
    restricted: bool | None
    scores: dict[str, dict[str, ActingScore]]


def score_acting(episodes: Iterable[Episode]) -> ActingScore:
    """Scores of a set of episodes; see `ActingScore`."""
    played = list(episodes)
    valid = [episode for episode in played if episode.reward_valid]
    turns = [turn for episode in valid for turn in episode.turns]
    nothing = [not turn.accepted for turn in turns]
    repeated = [flag for episode in valid for flag in repeated_turns(episode)]
    by_type: dict[str, list[bool]] = {}
    for episode in valid:
        by_type.setdefault(episode.task_type, []).append(episode.success)
    return ActingScore(
        success=proportion(episode.success for episode in valid),
        success_by_type={name: proportion(outcomes) for name, outcomes in sorted(by_type.items())},
        mean_turns=_mean([len(episode.turns) for episode in valid]),
        mean_turns_solved=_mean([len(episode.turns) for episode in valid if episode.success]),
        mean_progress=_mean([episode.progress for episode in valid]),
        invalid_rate=_mean([not turn.format_valid for turn in turns]),
        nothing_rate=_mean(nothing),
        repeated_rate=_mean(repeated),
        wasted_rate=_mean([one or other for one, other in zip(nothing, repeated, strict=True)]),
        terminations=dict(sorted(Counter(episode.termination.value for episode in played).items())),
        invalid_episodes=len(played) - len(valid),
        sampled_tokens=_mean([episode.sampled_tokens for episode in valid]),
    )


def report_acting(model: str, episodes: Iterable[Episode]) -> ActingReport:
    """The scores of one model's evaluation episodes, by split and temperature."""
    cells: dict[str, dict[str, list[Episode]]] = {}
    restricted: set[bool] = set()
    for episode in episodes:
        cells.setdefault(episode.split, {}).setdefault(f"{episode.temperature:g}", []).append(episode)
        restricted.add(episode.restricted)
    return ActingReport(
        model=model,
        restricted=restricted.pop() if len(restricted) == 1 else None,
        scores={
            split: {temperature: score_acting(found) for temperature, found in sorted(row.items())}
            for split, row in sorted(cells.items())
        },
    )


def repeated_turns(episode: Episode) -> list[bool]:
    """Per turn: an understood action, tried before in this episode with the same answer, without progress."""
    seen: set[tuple[str, str]] = set()
    flags: list[bool] = []
    progress = 0.0
    for turn in episode.turns:
        pair = (turn.action, turn.next_observation)
        flags.append(turn.accepted and pair in seen and turn.progress <= progress and not turn.terminated)
        seen.add(pair)
        progress = turn.progress
    return flags


def _mean(values: Sequence[float]) -> float:
    return float(sum(values)) / len(values) if values else 0.0
