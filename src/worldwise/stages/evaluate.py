"""Evaluation: acting on held-out tasks, predicting held-out observations, and what training changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from pydantic import Field, field_validator

from worldwise.config import FrozenConfig, derive_seed
from worldwise.episodes.record import Episode, Prediction
from worldwise.episodes.transitions import CleaningRules, Transition, extract
from worldwise.generation.protocol import Sampling
from worldwise.rollouts.config import EpisodePlan, plan_groups
from worldwise.stages.actor import Checkpoint, StageContext, make_actor
from worldwise.stages.encoder import Encoder, distances
from worldwise.stages.errors import StageError
from worldwise.stages.playing import play_plans, sound
from worldwise.stages.predicting import predict
from worldwise.stages.world_model_scores import PredictedPair, WorldModelReport, report_world_model
from worldwise.worlds.contract import Task

STAGE = "evaluate"


class EvaluateConfig(FrozenConfig):
    """Evaluation.

    Attributes:
        splits: splits whose tasks are played.
        games: tasks of each split, in the world's fixed order; None = all.
        temperatures: sampling temperatures; 0 = greedy, which never samples (0.4 in the GiGPO scripts).
        episodes_per_game: episodes of every task at every temperature above 0; greedy play is played once.
        max_turns: turn limit; None = the world's own (30 in RWML, 50 in GiGPO).
        world_model_transitions: held-out transitions on which predictions are scored.
        world_model_tokens: most tokens of a prediction.
        shown_episodes: episodes of every evaluation that get the model's own predictions for the browser.
    """

    splits: tuple[str, ...] = ("valid_seen", "valid_unseen")
    games: int | None = Field(256, ge=1)
    temperatures: tuple[float, ...] = (0.0, 0.4)
    episodes_per_game: int = Field(1, ge=1)
    max_turns: int | None = Field(None, ge=1)
    world_model_transitions: int = Field(512, ge=1)
    world_model_tokens: int = Field(128, ge=8)
    shown_episodes: int = Field(12, ge=0)

    @field_validator("splits")
    @classmethod
    def _some_splits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError(f"splits is {value}: give at least one split, each once")
        return value

    @field_validator("temperatures")
    @classmethod
    def _some_temperatures(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or len(set(value)) != len(value) or not all(0.0 <= one <= 10.0 for one in value):
            raise ValueError(f"temperatures is {value}: give at least one value from 0 to 10, each once")
        return value


def evaluate_acting(
    checkpoint: Checkpoint, tasks: Mapping[str, Sequence[Task]], config: EvaluateConfig, context: StageContext
) -> Iterator[Episode]:
    """Play the tasks of every split at every temperature.

    Draws do not depend on the model: two models see the same tasks with the same random streams.

    Args:
        checkpoint: the weights that act.
        tasks: split -> its tasks; the first `config.games` of each split in `config.splits` are played.
        config, context: settings.

    Raises:
        StageError: a wanted split has no tasks, or too many episodes ended in failures of world or engine
            (`rollout.failures_max`).
    """
    plans = evaluation_plans(tasks, config, context.seed)
    solved = 0
    with make_actor(checkpoint, context) as actor:
        played = play_plans(actor, plans, context, config.max_turns)
        watched = sound(played, len(plans), f"{STAGE} {checkpoint.version}", context.rollout.failures_max)
        for number, episode in enumerate(watched, start=1):
            solved += episode.success
            context.reporter.progress(number, len(plans), f"{checkpoint.version}: {solved} solved")
            yield episode


def evaluation_plans(tasks: Mapping[str, Sequence[Task]], config: EvaluateConfig, seed: int) -> list[EpisodePlan]:
    """What `evaluate_acting` plays, in its order.

    Raises:
        StageError: a wanted split has no tasks.
    """
    plans: list[EpisodePlan] = []
    for split in config.splits:
        chosen = list(islice(tasks.get(split, ()), config.games))
        if not chosen:
            raise StageError(
                f"evaluate.splits names {split!r} and there are tasks only for "
                f"{', '.join(sorted(tasks)) or 'no split'}: prepare its tasks or leave it out"
            )
        for temperature in config.temperatures:
            samples = config.episodes_per_game if temperature > 0 else 1
            plans += plan_groups(chosen, samples, f"{STAGE}/{split}/T{temperature:g}", 0, seed, temperature)
    return plans


def held_out_transitions(
    episodes: Sequence[Episode], config: EvaluateConfig, context: StageContext
) -> list[Transition]:
    """A seeded choice of transitions from evaluation episodes, to score all models on.

    Duplicates leave, badly formed turns do too, and at most a tenth may be "Nothing happens." ones.
    """
    found, _ = extract(episodes, context.family, CleaningRules(), context.seed)
    order = sorted(range(len(found)), key=lambda i: derive_seed(context.seed, STAGE, found[i].transition_id))
    return [found[index] for index in sorted(order[: config.world_model_transitions])]


def score_world_model(
    checkpoint: Checkpoint,
    transitions: Sequence[Transition],
    config: EvaluateConfig,
    context: StageContext,
    encoder: Encoder,
) -> tuple[WorldModelReport, list[PredictedPair]]:
    """Score the most probable prediction of every held-out transition.

    Raises:
        StageError: no transitions.
    """
    if not transitions:
        raise StageError("evaluate: there are no held-out transitions to predict; play more evaluation games")
    with make_actor(checkpoint, context, config.world_model_tokens) as actor:
        samples = predict(
            actor,
            transitions,
            1,
            Sampling(temperature=0.0, max_tokens=config.world_model_tokens),
            derive_seed(context.seed, STAGE, "world_model"),
            lambda done, total: context.reporter.progress(done, total, f"{checkpoint.version}: predictions"),
        )
    texts = [own[0].text for own in samples]
    found = distances(encoder, texts, [transition.next_observation for transition in transitions])
    pairs = [
        PredictedPair(
            transition_id=transition.transition_id,
            kind=transition.kind,
            split=transition.split,
            prediction=text,
            observation=transition.next_observation,
            distance=float(distance),
        )
        for transition, text, distance in zip(transitions, texts, found, strict=True)
    ]
    return report_world_model(checkpoint.version, pairs), pairs


def with_predictions(
    checkpoint: Checkpoint,
    episodes: Sequence[Episode],
    config: EvaluateConfig,
    context: StageContext,
    encoder: Encoder,
) -> list[Episode]:
    """The episodes with the model's most probable prediction of every next observation, scored by cosine."""
    rules = CleaningRules(drop_invalid_format=False, drop_duplicates=False, max_rejected_share=1.0)
    transitions, _ = extract(episodes, context.family, rules, context.seed)
    with make_actor(checkpoint, context, config.world_model_tokens) as actor:
        room = actor.engine.max_length - config.world_model_tokens
        fitting = [item for item in transitions if len(actor.agent.predict_prompt(item.prompt_ids)) <= room]
        sampling = Sampling(temperature=0.0, max_tokens=config.world_model_tokens)
        samples = predict(actor, fitting, 1, sampling, derive_seed(context.seed, STAGE, "shown"))
    found = distances(encoder, [own[0].text for own in samples], [item.next_observation for item in fitting])
    predictions = {
        (item.episode_id, item.turn): Prediction(
            horizon=1,
            text=own[0].text or "",
            token_ids=own[0].completion.token_ids,
            logprobs=own[0].completion.logprobs,
            score=float(1.0 - distance) if np.isfinite(distance) else 0.0,
        )
        for item, own, distance in zip(fitting, samples, found, strict=True)
    }
    return [_annotated(episode, predictions) for episode in episodes]


def weights_changed(before: Checkpoint, after: Checkpoint) -> float:
    """Share of weights with |w' - w| > 1e-3 max(|w|, |w'|), in [0, 1] (the measure of RWML's paper).

    Raises:
        StageError: the two are not models of one shape.
    """
    import torch

    first, second = before.model.state_dict(), after.model.state_dict()
    if {k: v.shape for k, v in first.items()} != {k: v.shape for k, v in second.items()}:
        raise StageError(f"{before.version} and {after.version} are models of different shapes")
    changed, total = 0, 0
    for name, value in first.items():
        old, new = value.detach().to("cpu", torch.float32), second[name].detach().to("cpu", torch.float32)
        changed += int(((new - old).abs() > 1e-3 * torch.maximum(old.abs(), new.abs())).sum())
        total += value.numel()
    return changed / max(total, 1)


def _annotated(episode: Episode, predictions: Mapping[tuple[str, int], Prediction]) -> Episode:
    turns = tuple(
        replace(turn, predictions=(*turn.predictions, found))
        if (found := predictions.get((episode.episode_id, turn.index))) is not None
        else turn
        for turn in episode.turns
    )
    return replace(episode, turns=turns)
