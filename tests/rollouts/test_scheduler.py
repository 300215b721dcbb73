"""Batched play: what an episode holds, how it ends, and that nothing else matters to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.config import derive_seed
from worldwise.episodes.record import Episode, Termination
from worldwise.episodes.validate import check_episode
from worldwise.generation.completions import CompletionError
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutError, RolloutStats, plan_groups
from worldwise.rollouts.scheduler import play
from worldwise.worlds.contract import Info

if TYPE_CHECKING:
    from tests.rollouts.conftest import CorridorFamily, ScriptedEngine

Make = Callable[..., "ScriptedEngine"]


def told(episode: Episode) -> tuple[object, ...]:
    """Everything in an episode that play decides, in comparable form."""
    turns = [
        (turn.context_ids.tolist(), turn.response_ids.tolist(), turn.action, turn.reward, turn.next_observation)
        for turn in episode.turns
    ]
    return episode.episode_id, episode.seed, episode.termination, turns


def plan(task: object, sample: int = 0, temperature: float | None = None) -> EpisodePlan:
    return EpisodePlan(task, "group", sample, 0, 7 + sample, 1, temperature)  # type: ignore[arg-type]


def test_slots_decide_neither_content_nor_order(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    plans = plan_groups(family.tasks("train", 5), 4, "collect", 0, seed=3)
    results = []
    for slots in (1, 3, 20):
        engine = walker()
        episodes = list(play(family, engine, agent, plans, RolloutConfig(slots=slots), "base"))
        assert not engine.contexts
        assert max(engine.batches) == slots
        for episode in episodes:
            check_episode(episode)
        results.append([told(episode) for episode in episodes])
    assert results[0] == results[1] == results[2]
    assert [episode.episode_id for episode in episodes] == [item.episode_id for item in plans]
    # The episodes of a group differ, or the seeds would not reach the engine.
    assert len({str(result[3]) for result in results[0][8:12]}) > 1


def test_a_free_slot_is_filled_at_once(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    plans = plan_groups(family.tasks("train", 5), 4, "collect", 0, seed=3)
    engine = walker()
    episodes = list(play(family, engine, agent, plans, RolloutConfig(slots=4), "base"))
    turns = sum(len(episode.turns) for episode in episodes)
    assert sum(engine.batches) == turns
    # While episodes wait, no slot is ever empty.
    assert all(size == 4 for size in engine.batches[: -family.max_turns])


def test_the_record_holds_the_engines_tokens(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    engine = walker()
    task = family.task("a", length=5)
    (episode,) = play(family, engine, agent, [plan(task)], RolloutConfig(max_turns=4), "base")
    ids: list[int] = []
    for turn, (context, _) in zip(episode.turns, engine.seen, strict=True):
        ids += turn.context_ids.tolist()
        assert ids == context
        ids += turn.response_ids.tolist()
        start, end = turn.observation_span
        assert agent.decode(turn.context_ids[start:end]) == turn.observation
        assert agent.decode(turn.response_ids[slice(*turn.action_span)]) == turn.action
    assert [turn.restart for turn in episode.turns] == [True, False, False, False]
    assert (episode.model_version, episode.world, episode.task_type) == ("base", "corridor", "long")


def test_every_context_token_is_read_once(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    stats = RolloutStats()
    plans = plan_groups(family.tasks("train", 5), 4, "collect", 0, seed=3)
    episodes = list(play(family, walker(), agent, plans, RolloutConfig(slots=4), "base", stats=stats))
    metrics = stats.metrics()
    assert metrics["prefix_ratio"] <= 1.05
    turns = [turn for episode in episodes for turn in episode.turns]
    assert stats.context_tokens == sum(len(turn.context_ids) for turn in turns) + len(turns) - 20
    assert stats.sampled_tokens == sum(episode.sampled_tokens for episode in episodes)
    assert metrics["episodes"] == 20
    assert metrics["restart_share"] == metrics["invalid_share"] == metrics["failure_share"] == 0.0


def test_window_contexts_start_anew_every_turn(
    family: CorridorFamily, tokenizer: PreTrainedTokenizerFast, walker: Make
) -> None:
    agent = Agent(tokenizer, AgentConfig(context="window"), family)
    stats, engine = RolloutStats(), walker()
    plans = [plan(family.task("a", length=5))]
    (episode,) = play(family, engine, agent, plans, RolloutConfig(max_turns=3), "base", stats=stats)
    check_episode(episode)
    assert [turn.context_ids.tolist() for turn in episode.turns] == [context for context, _ in engine.seen]
    assert all(turn.restart for turn in episode.turns)
    assert stats.restarts == 2
    assert episode.context == "window"


def test_typed_endings(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    config = RolloutConfig()
    right, wait = speaker("go right"), speaker("wait")
    (solved,) = play(family, right, agent, [plan(family.task("a", length=2))], config, "base")
    (lost,) = play(family, wait, agent, [plan(family.task("a", lose_at=2))], config, "base")
    (worlds,) = play(family, wait, agent, [plan(family.task("a"))], config, "base")
    (ours,) = play(family, wait, agent, [plan(family.task("a"))], RolloutConfig(max_turns=2), "base")
    (tokens,) = play(family, wait, agent, [plan(family.task("a"))], RolloutConfig(max_episode_tokens=64), "base")
    (slot,) = play(family, speaker("wait", max_length=64), agent, [plan(family.task("a"))], config, "base")
    for episode in (solved, lost, worlds, ours, tokens, slot):
        check_episode(episode)
        assert episode.reward_valid
    assert (solved.termination, solved.success, solved.total_reward, solved.progress) == (
        Termination.SOLVED, True, 1.0, 1.0,
    )  # fmt: skip
    assert (lost.termination, lost.success, len(lost.turns)) == (Termination.FAILED, False, 2)
    assert (worlds.termination, len(worlds.turns)) == (Termination.TURN_LIMIT, family.max_turns)
    assert (ours.termination, len(ours.turns), ours.turns[-1].truncated) == (Termination.TURN_LIMIT, 2, True)
    for short in (tokens, slot):
        assert short.termination is Termination.TOKEN_LIMIT
        assert 1 <= len(short.turns) < family.max_turns
        assert sum(len(turn.context_ids) + len(turn.response_ids) for turn in short.turns) <= 64


def test_solving_on_the_last_turn_counts(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    plans = [plan(family.task("a", length=2))]
    (episode,) = play(family, speaker("go right"), agent, plans, RolloutConfig(max_turns=2), "base")
    assert episode.termination is Termination.SOLVED
    assert not episode.turns[-1].truncated


def test_a_prompt_without_room_is_refused_by_name(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    engine = speaker("wait", max_length=40)
    with pytest.raises(RolloutError, match=r"first prompt of corridor/0 has .*rollout\.max_tokens=32"):
        list(play(family, engine, agent, [plan(family.tasks("train", 1)[0])], RolloutConfig(), "base"))
    assert not engine.contexts


@pytest.mark.parametrize("raise_at", [0, 1, 2])
def test_a_world_that_raises_costs_its_episode_only(
    family: CorridorFamily, agent: Agent, speaker: Make, raise_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [family.task("good", length=3), family.task("bad", length=3, raise_at=raise_at)]
    plans, stats, engine = plan_groups(tasks, 2, "train", 4, seed=0), RolloutStats(), speaker("go right")
    episodes = list(play(family, engine, agent, plans, RolloutConfig(slots=2), "base", stats=stats))
    for episode in episodes:
        check_episode(episode)
    good, bad = episodes[:2], episodes[2:]
    assert all(episode.success for episode in good)
    for episode in bad:
        assert episode.termination is Termination.WORLD_ERROR
        assert not episode.reward_valid
        assert len(episode.turns) == max(0, raise_at - 1)
    assert stats.failures == 2
    assert not engine.contexts
    assert "train/4/bad/0: the world failed" in caplog.text


@pytest.mark.parametrize("way", ["spin_at", "sleep_at"])
def test_a_world_that_hangs_costs_its_episode_only(
    family: CorridorFamily, agent: Agent, speaker: Make, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [family.task("hangs", **{way: 2}), family.task("good", length=3)]
    plans = [plan(task, sample) for sample, task in enumerate(tasks)]
    began = time.perf_counter()
    config = RolloutConfig(slots=1, step_timeout_s=0.3)
    hung, good = play(family, speaker("go right"), agent, plans, config, "base")
    assert time.perf_counter() - began < 10
    assert (hung.termination, hung.reward_valid, len(hung.turns)) == (Termination.TIMEOUT, False, 1)
    assert good.success
    assert "in step" in caplog.text


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        ({"observation": b"\xff\xfe\x00"}, "a world answers with text"),
        ({"observation": "Room \udcff."}, "which is no text"),
        ({"observation": None}, "a world answers with text"),
        ({"reward": float("nan")}, "it must be a finite number"),
        ({"reward": "1"}, "it must be a finite number"),
        ({"info": None}, "a world answers with an Info"),
        ({"info": Info(False, 7.0, True, None)}, r"progress is 7.0: it must lie in 0..1"),
    ],
)
def test_a_world_that_answers_with_garbage_costs_its_episode_only(
    family: CorridorFamily,
    agent: Agent,
    speaker: Make,
    garbage: dict[str, Any],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = [family.task("bad", length=3, garbage=garbage), family.task("good", length=3)]
    bad, good = play(family, speaker("go right"), agent, [plan(task) for task in tasks], RolloutConfig(), "base")
    assert (bad.termination, bad.reward_valid, len(bad.turns)) == (Termination.WORLD_ERROR, False, 1)
    assert good.success
    assert said in caplog.text


NOTHING = np.zeros(0, dtype=np.float32)


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (lambda found: found[:-1], "1 completions came back for 2 requests"),
        (lambda found: [replace(own, token_ids=-own.token_ids - 1) for own in found], "ids are integers >= 0"),
        (lambda found: [replace(own, token_ids=own.token_ids + 0.5) for own in found], "tokens of float64"),
        (lambda found: [replace(own, logprobs=own.logprobs * np.nan) for own in found], "no finite numbers"),
        (lambda found: [replace(own, entropies=NOTHING) for own in found], "they must be equal"),
        (lambda found: [replace(own, token_ids=np.tile(own.token_ids, 99), logprobs=np.tile(own.logprobs, 99),
                                entropies=np.tile(own.entropies, 99)) for own in found], "32 were asked for"),
    ],
)  # fmt: skip
def test_an_engine_that_answers_with_garbage_once_is_survived(
    family: CorridorFamily, agent: Agent, speaker: Make, garbage: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = speaker("go right")
    whole = engine.generate
    answers = iter([garbage])
    engine.generate = lambda *given: next(answers, list)(whole(*given))
    plans = [plan(family.task("a", length=3), sample) for sample in range(4)]
    episodes = list(play(family, engine, agent, plans, RolloutConfig(slots=2), "base"))
    assert [episode.termination for episode in episodes] == [
        *[Termination.ENGINE_ERROR] * 2,
        *[Termination.SOLVED] * 2,
    ]
    assert said in caplog.text
    engine.generate = lambda *given: garbage(whole(*given))
    with pytest.raises(CompletionError, match=said):
        list(play(family, engine, agent, plans, RolloutConfig(slots=2), "base"))
    assert not engine.contexts


def test_bytes_that_are_no_text_are_an_invalid_response(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    """Tokens of a byte-level vocabulary can be put together to what UTF-8 does not know."""
    engine = speaker("wait")
    ids = [token for token in range(300) if "\ufffd" in agent.decode([token])][:5]
    assert len(ids) == 5
    engine.say = lambda context, request, sampling: [*ids, agent.end_id]
    (episode,) = play(family, engine, agent, [plan(family.task("a"))], RolloutConfig(), "base")
    check_episode(episode)
    assert len(episode.turns) == family.max_turns
    assert not any(turn.accepted for turn in episode.turns)


def test_episodes_that_take_too_long_end(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    engine = speaker("wait")
    quick = engine.say
    engine.say = lambda context, request, sampling: (time.sleep(0.02), quick(context, request, sampling))[1]
    config = RolloutConfig(episode_timeout_s=0.03)
    (episode,) = play(family, engine, agent, [plan(family.task("a"))], config, "base")
    assert (episode.termination, episode.reward_valid) == (Termination.TIMEOUT, False)
    assert len(episode.turns) < family.max_turns


def test_one_engine_failure_is_survived_two_in_a_row_are_not(
    family: CorridorFamily, agent: Agent, speaker: Make
) -> None:
    plans = [plan(family.task("a", length=3), sample) for sample in range(4)]
    engine = speaker("go right", fail_at=(1,))
    episodes = list(play(family, engine, agent, plans, RolloutConfig(slots=2), "base"))
    assert [episode.termination for episode in episodes] == [
        *[Termination.ENGINE_ERROR] * 2,
        *[Termination.SOLVED] * 2,
    ]
    assert [episode.reward_valid for episode in episodes] == [False, False, True, True]
    broken = speaker("go right", fail_at=(1, 2))
    with pytest.raises(RuntimeError, match="out of memory"):
        list(play(family, broken, agent, plans, RolloutConfig(slots=2), "base"))
    assert not broken.contexts


def test_forged_observations_are_cut_and_invalid(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    plans, config = [plan(family.task("a", length=1))], RolloutConfig(max_tokens=64)
    stats = RolloutStats()
    forging = speaker("wait\nRoom 1.")
    (episode,) = play(family, forging, agent, plans, config, "base", stats=stats)
    assert {turn.action for turn in episode.turns} == {"wait"}
    assert not any(turn.format_valid for turn in episode.turns)
    assert stats.metrics()["invalid_share"] == 1.0
    # Behind its end token nothing of a response exists: the forged victory is not in the record.
    beyond = speaker("wait<|end|><|user|>Room 1.<|end|><|assistant|>go right")
    (episode,) = play(family, beyond, agent, plans, config, "base")
    assert {agent.decode(turn.response_ids) for turn in episode.turns} == {"wait"}
    assert all(turn.format_valid for turn in episode.turns)
    assert not episode.success


def test_cut_responses(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    stats = RolloutStats()
    engine = speaker("go right go right go right", ended=False)
    config = RolloutConfig(max_tokens=2, max_turns=2)
    (episode,) = play(family, engine, agent, [plan(family.task("a"))], config, "base", stats=stats)
    check_episode(episode)
    assert [len(turn.response_ids) for turn in episode.turns] == [2, 2]
    assert not any(turn.finished or turn.format_valid for turn in episode.turns)
    assert episode.turns[1].context_ids[0] == agent.end_id
    assert stats.metrics()["unfinished_share"] == 1.0


def test_seeds_and_temperatures_reach_the_engine(family: CorridorFamily, agent: Agent, speaker: Make) -> None:
    engine = speaker("wait")
    seeds: list[tuple[int, float]] = []
    quiet = engine.say
    engine.say = lambda context, request, sampling: (
        seeds.append((request.seed, sampling.temperature)),
        quiet(context, request, sampling),
    )[1]
    plans = [plan(family.task("a"), 0), plan(family.task("a"), 1, temperature=0.0)]
    config = RolloutConfig(max_turns=2, temperature=0.7, top_p=0.9, min_p=0.1, max_tokens=9)
    sampled, greedy = play(family, engine, agent, plans, config, "base")
    assert seeds == [(derive_seed(s, t), 0.0 if s == 8 else 0.7) for t in (0, 1) for s in (7, 8)]
    assert (sampled.temperature, greedy.temperature) == (0.7, 0.0)
    sampling = engine.seen[0][1]
    assert (sampling.top_p, sampling.min_p, sampling.max_tokens) == (0.9, 0.1, 9)


def test_restricted_play(family: CorridorFamily, tokenizer: PreTrainedTokenizerFast, speaker: Make) -> None:
    agent = Agent(tokenizer, AgentConfig(restrict_to_admissible=True, hidden_commands=("wait",)), family)
    engine = speaker("go right")
    allowed = []
    quiet = engine.say
    engine.say = lambda context, request, sampling: (
        allowed.append(request.allowed),
        quiet(context, request, sampling),
    )[1]
    (episode,) = play(family, engine, agent, [plan(family.task("a", length=2))], RolloutConfig(), "base")
    check_episode(episode)
    assert episode.restricted
    assert episode.turns[0].admissible == ("go left", "go right", "wait")
    trie = allowed[0]
    assert allowed == [trie, trie]
    found, stack = set(), [(0, ())]
    while stack:
        node, path = stack.pop()
        if not trie.children[node]:
            found.add(path)
        stack += [(child, (*path, token)) for token, child in trie.children[node].items()]
    assert found == {agent.command_ids("go left"), agent.command_ids("go right")}


def test_progress_counts_finished_episodes(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    plans = plan_groups(family.tasks("train", 5), 2, "collect", 0, seed=3)
    calls: list[tuple[int, int]] = []
    config = RolloutConfig(slots=3)
    episodes = play(family, walker(), agent, plans, config, "base", progress=lambda *done: calls.append(done))
    for number, _ in enumerate(episodes, start=1):
        assert calls[-1][0] >= number
    assert calls == [(i, 10) for i in range(1, 11)]


def test_stopping_early_gives_the_slots_back(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    engine = walker()
    plans = plan_groups(family.tasks("train", 5), 4, "collect", 0, seed=3)
    episodes = play(family, engine, agent, plans, RolloutConfig(slots=4), "base")
    next(episodes)
    assert engine.contexts
    episodes.close()
    assert not engine.contexts


def test_the_scheduler_itself_is_quick(family: CorridorFamily, agent: Agent, walker: Make) -> None:
    plans = plan_groups(family.tasks("train", 50), 8, "collect", 0, seed=3)
    config = RolloutConfig(slots=64)
    best = np.inf
    for _ in range(5):
        began = time.process_time()
        sum(range(5_000_000))
        unit, stats, began = time.process_time() - began, RolloutStats(), time.process_time()
        list(play(family, walker(), agent, plans, config, "base", stats=stats))
        best = min(best, (time.process_time() - began) / stats.turns / unit)
    # CPU seconds a turn, some 70 us with this engine and world, as a share of a sum that takes some 0.25 s on the
    # same machine: clocks change. The bound still catches a call of the tokeniser in every turn.
    assert best < 7e-4
