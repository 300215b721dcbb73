"""The base model's data, tokenizer and training, on small sizes."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.ledger.workspace import Workspace
from worldwise.stages.base_model.build import BaseModelConfig, build_base_model
from worldwise.stages.base_model.encoding import PlayEncoder
from worldwise.stages.base_model.play import PlayConfig, Transcript, play_episodes
from worldwise.stages.base_model.tokenizer import END, train_tokenizer
from worldwise.stages.base_model.train import ShapeConfig, TrainConfig, batches, new_model, row_loss
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily


@pytest.fixture(scope="module")
def played() -> list[Transcript]:
    return list(play_episodes(PlayConfig(), 0, 300))


@pytest.fixture(scope="module")
def tokenizer(played):
    texts = [text for transcript in played for text in transcript.observations + transcript.actions]
    return train_tokenizer([*texts, "predict"], 700, 2048)


@pytest.fixture(scope="module")
def agent(tokenizer) -> Agent:
    return Agent(tokenizer, AgentConfig(), HouseholdFamily(HouseholdConfig()))


def test_an_episode_depends_on_its_number_only(played):
    assert list(play_episodes(PlayConfig(), 7, 3)) == played[7:10]


def test_play_mixes_what_the_configuration_says(played):
    purposeful = sum(transcript.purposeful for transcript in played) / len(played)
    refused = sum(len(transcript.refused) for transcript in played) / sum(len(t.actions) for t in played)
    assert abs(purposeful - PlayConfig().purposeful_share) < 0.07
    assert 0.02 < refused < 0.08
    assert {transcript.task_type for transcript in played if transcript.success} == {
        transcript.task_type for transcript in played
    }


def test_without_slips_and_noise_purposeful_play_solves_its_games():
    config = PlayConfig(
        purposeful_share=1.0,
        noise_high=0.0,
        skip_step=0.0,
        wrong_object=0.0,
        wrong_target=0.0,
        stale_commands=0.0,
    )
    transcripts = list(play_episodes(config, 0, 60))
    assert sum(transcript.success for transcript in transcripts) >= 57


SLIPS = PlayConfig(
    purposeful_share=1.0,
    noise_high=0.0,
    skip_step=1.0,
    wrong_object=0.0,
    wrong_target=0.0,
    stale_commands=0.0,
)


def test_a_skipped_step_is_never_a_success():
    config = SLIPS.model_copy(update={"second_reading": 0.0})
    special = [
        t for t in play_episodes(config, 0, 80) if t.task_type.startswith(("pick_clean", "pick_heat", "pick_cool"))
    ]
    assert special
    assert not any(transcript.success for transcript in special)


def test_after_a_misread_goal_errands_fill_the_episode():
    transcripts = list(play_episodes(SLIPS.model_copy(update={"second_reading": 0.0}), 0, 40))
    unsolved = [t for t in transcripts if not t.success]
    assert {len(t.actions) for t in unsolved} <= set(range(25, 51)), "an unsolved one lasts until its limit"
    moved = [{a.split()[1] for a in t.actions if a.startswith("move ")} for t in unsolved]
    assert np.mean([len(kinds) >= 3 for kinds in moved]) > 0.5
    assert not any("Nothing happens." in t.observations for t in transcripts)


def test_a_goal_read_anew_may_be_read_right():
    rates = [
        np.mean([t.success for t in play_episodes(config, 0, 80) if t.task_type != "pick_and_place_simple"])
        for config in (SLIPS.model_copy(update={"skip_step": 0.7, "second_reading": share}) for share in (0.0, 1.0))
    ]
    assert rates[1] > rates[0] + 0.2


def test_stale_commands_are_always_refused(played):
    assert {t.observations[index + 1] for t in played for index in t.refused} == {"Nothing happens."}


def test_refused_commands_carry_no_loss(played, agent):
    transcript = next(transcript for transcript in played if transcript.refused)
    index = min(transcript.refused)
    assert transcript.observations[index + 1] == "Nothing happens."
    row = PlayEncoder(agent, 0.1, 0.2).episode(transcript)
    said = agent.transcript(transcript.observations[:-1], transcript.actions)
    assert not row.weights[(said.roles == 1) & (said.turns == index)].any()


def test_loss_weights_of_a_row(played, agent):
    transcript = next(transcript for transcript in played if not transcript.refused)
    row = PlayEncoder(agent, 0.1, 0.2).episode(transcript)
    said = agent.transcript(transcript.observations[:-1], transcript.actions)
    np.testing.assert_array_equal(row.weights[said.roles == 1], 1.0)
    np.testing.assert_allclose(row.weights[said.roles == 2], 0.1)
    assert row.weights[said.roles == 0].sum() == 0.0


def test_prediction_rows_end_in_the_question_and_its_answer(played, agent):
    row = PlayEncoder(agent, 0.0, 0.2).prediction(played[0], random.Random(3))
    text = agent.decode(row.token_ids)
    question, _, answer = text.rpartition("<|user|>predict<|end|><|assistant|>")
    assert question
    predicted = agent.parse_prediction(answer)
    assert predicted in {observation.strip() for observation in played[0].observations[1:]}
    assert set(np.unique(row.weights[-len(agent.encode(answer)) :]).tolist()) == {np.float32(0.2), 1.0}


def test_tokenizer_keeps_prefixes(tokenizer):
    chat = [
        {"role": "user", "content": "You see a mug 12.\n\n"},
        {"role": "assistant", "content": "go to desk 1"},
        {"role": "user", "content": "\n\nYou arrive at desk 1."},
    ]
    whole = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    for count in (1, 2):
        part = tokenizer.apply_chat_template(chat[:count], add_generation_prompt=count == 1)["input_ids"]
        assert whole[: len(part)] == part


def test_tokenizer_is_lossless_and_joins_a_blank_with_its_digit(tokenizer):
    text = "Ein Löffel 3, 日本 and\ttabs\n\n  drawer 12"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.tokenize("drawer 12")[-2:] == ["Ġ1", "2"]
    assert tokenizer.eos_token == END


def test_batches_hold_every_row_once_within_the_budget(played, agent):
    encoder = PlayEncoder(agent, 0.1, 0.2)
    rows = [encoder.episode(transcript) for transcript in played]
    plan = list(batches(rows, 2048, seed=1))
    assert sorted(index for batch in plan for index in batch) == list(range(len(rows)))
    for batch in plan:
        longest = max(len(rows[index].token_ids) for index in batch)
        assert len(batch) == 1 or len(batch) * -(-longest // 32) * 32 <= 2048


def test_loss_of_a_batch_is_the_weighted_mean_of_each_rows_own(played, agent, tokenizer):
    encoder = PlayEncoder(agent, 0.1, 0.2)
    rows = [encoder.episode(played[0]), encoder.prediction(played[1], random.Random(0)), encoder.episode(played[2])]
    shape = ShapeConfig(layers=2, hidden=32, feed_forward=64, heads=2, kv_heads=1, head_dim=16, vocab_size=700)
    model = new_model(shape, len(tokenizer), 0, 1, seed=3)
    total, weight = 0.0, 0.0
    for row in rows:
        with torch.no_grad():
            logits = model(torch.from_numpy(row.token_ids.astype(np.int64))[None]).logits[0, :-1]
        own = torch.nn.functional.cross_entropy(
            logits, torch.from_numpy(row.token_ids.astype(np.int64))[1:], reduction="none"
        )
        total += float((own * torch.from_numpy(row.weights)[1:]).sum())
        weight += float(row.weights.sum())
    loss, summed = row_loss(model, rows, torch.float32)
    assert summed == pytest.approx(weight, rel=1e-6)
    assert float(loss.detach()) == pytest.approx(total / weight, rel=1e-5)


SMALL = BaseModelConfig(
    play=PlayConfig(episodes=150),
    shape=ShapeConfig(layers=1, hidden=32, feed_forward=64, heads=2, kv_heads=1, head_dim=16, vocab_size=600),
    train=TrainConfig(batch_tokens=2048, threads=1, warmup_steps=2, learning_rate=1e-2),
)


class Killed(Workspace):
    """A workspace in which the build dies after so many states; 0 = it does not."""

    def __init__(self, folder: Path, lives: int):
        super().__init__(folder, every_s=0.0)
        self.lives = lives

    def save(self, write):
        super().save(write)
        self.lives -= 1
        if not self.lives:
            raise KeyboardInterrupt


def test_a_build_that_was_killed_ends_with_the_same_bytes(tmp_path: Path):
    curves: list[dict[int, float]] = [{}, {}]
    (tmp_path / "whole").mkdir()
    whole = build_base_model(SMALL, tmp_path / "whole", lambda row, step: curves[0].update({step: row["loss"]}))
    for lives in (51, 20):
        with pytest.raises(KeyboardInterrupt):
            build_base_model(SMALL, tmp_path / "never", lambda row, step: None, Killed(tmp_path / "work", lives))
    (tmp_path / "resumed").mkdir()
    resumed = build_base_model(
        SMALL,
        tmp_path / "resumed",
        lambda row, step: curves[1].update({step: row["loss"]}),
        Killed(tmp_path / "work", 0),
    )
    assert whole["steps"] > 80, "both were killed in the middle"
    assert resumed["sha256"] == whole["sha256"]
    assert curves[1] == curves[0]


def test_building_twice_gives_the_same_bytes_and_learns(tmp_path: Path):
    curves: list[list[float]] = [[], []]
    facts = []
    for turn in (0, 1):
        folder = tmp_path / str(turn)
        folder.mkdir()
        facts.append(build_base_model(SMALL, folder, lambda row, step, turn=turn: curves[turn].append(row["loss"])))
    assert facts[0]["sha256"] == facts[1]["sha256"]
    assert curves[0] == curves[1]
    assert curves[0][-1] < 6.0 < np.log(600)
    assert json.loads((tmp_path / "0" / "recipe.json").read_text())["facts"]["sha256"] == facts[0]["sha256"]
    card = (tmp_path / "0" / "README.md").read_text()
    assert facts[0]["sha256"] in card
    assert "150 episodes" in card


def test_the_shipped_model_is_of_the_recipe_in_the_code():
    shipped_folder = Path(str(importlib.resources.files("worldwise"))) / "assets" / "base_model"
    shipped = json.loads((shipped_folder / "recipe.json").read_text())
    assert shipped["config"] == BaseModelConfig().model_dump(mode="json")
    weights = (shipped_folder / "model.safetensors").read_bytes()
    assert shipped["facts"]["sha256"] == hashlib.sha256(weights).hexdigest()
