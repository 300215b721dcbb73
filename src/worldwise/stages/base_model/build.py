"""From nothing to the base model's folder: play, tokenizer, rows, training, model card."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.config import FrozenConfig, derive_seed
from worldwise.stages.base_model.card import model_card
from worldwise.stages.base_model.encoding import PlayEncoder, Row
from worldwise.stages.base_model.play import PlayConfig, Transcript, play_episodes
from worldwise.stages.base_model.tokenizer import train_tokenizer
from worldwise.stages.base_model.train import (
    ShapeConfig,
    TrainConfig,
    new_model,
    new_training,
    save_folder,
    train_base,
)
from worldwise.stages.saving import Saver, SavesNothing
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily

_TOKENIZER_EPISODES = 3000


class BaseModelConfig(FrozenConfig):
    """The recipe of the base model.

    Attributes:
        play: the data.
        shape: the model.
        train: the training.
        further_texts: what the tokenizer should know beside play: the words of the agent's templates.
    """

    play: PlayConfig = PlayConfig()
    shape: ShapeConfig = ShapeConfig()
    train: TrainConfig = TrainConfig()
    further_texts: tuple[str, ...] = ("predict",)


def build_base_model(
    config: BaseModelConfig,
    folder: Path,
    log: Callable[[Mapping[str, float], int], None],
    saver: Saver | None = None,
) -> dict[str, object]:
    """Make the base model and write it to `folder` (weights, config, tokenizer, card).

    The same configuration gives the same data everywhere and, on one machine with one number of
    threads, the same weights. A build that was killed makes its data anew and goes on with the training.

    Args:
        config: the recipe.
        folder: an existing folder to fill.
        log: receives the training curve.
        saver: keeps where the training stands; None = nothing is kept.

    Returns:
        Facts for the card: episodes, success of the play, tokens, steps, seconds, parameters, SHA-256 of the weights.
    """
    began, cpu = time.monotonic(), time.process_time()
    played = play_episodes(config.play, 0, config.play.episodes)
    first = list(itertools.islice(played, _TOKENIZER_EPISODES))
    texts = (text for transcript in first for text in transcript.observations + transcript.actions)
    tokenizer = train_tokenizer(
        itertools.chain(texts, config.further_texts), config.shape.vocab_size, config.shape.context
    )
    agent = Agent(tokenizer, AgentConfig(), HouseholdFamily(HouseholdConfig()))
    encoder = PlayEncoder(agent, config.train.observation_weight, config.train.prediction_weight)
    tally = {"episodes": 0, "purposeful": 0, "solved": 0, "turns": 0}
    rows = list(_rows(config, encoder, itertools.chain(first, played), tally))
    model = new_model(config.shape, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id, config.train.seed)
    training = new_training(model, config.train)
    keeper = saver or SavesNothing()
    if (state := keeper.latest()) is not None:
        training.read(state)
    spent = training.wall_seconds, training.cpu_seconds

    def seconds() -> tuple[float, float]:
        return spent[0] + time.monotonic() - began, spent[1] + time.process_time() - cpu

    def keep() -> None:
        if keeper.due():
            keeper.save(lambda target: training.write(target, *seconds()))

    steps = train_base(training, rows, config.train, log, keep)
    save_folder(model, folder)
    tokenizer.save_pretrained(folder)
    facts: dict[str, object] = {
        **tally,
        "tokens": sum(len(row.token_ids) for row in rows),
        "steps": steps,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "wall_seconds": round(seconds()[0]),
        "cpu_seconds": round(seconds()[1]),
        "sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
    }
    (folder / "recipe.json").write_text(
        json.dumps({"config": config.model_dump(mode="json"), "facts": facts}, indent=1)
    )
    (folder / "README.md").write_text(model_card(config.model_dump(mode="json"), facts))
    return facts


def _rows(
    config: BaseModelConfig, encoder: PlayEncoder, played: Iterator[Transcript], tally: dict[str, int]
) -> Iterator[Row]:
    for number, transcript in enumerate(played):
        tally["episodes"] += 1
        tally["purposeful"] += transcript.purposeful
        tally["solved"] += transcript.success
        tally["turns"] += len(transcript.actions)
        rng = random.Random(derive_seed(config.train.seed, "rows", number))
        if rng.random() < config.train.prediction_share:
            yield encoder.prediction(transcript, rng)
        else:
            yield encoder.episode(transcript)
