"""Worker processes: the same episodes as in one process, errors that arrive, and nobody left behind."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from worldwise.agents.agent import Agent
from worldwise.agents.config import AgentConfig
from worldwise.episodes.record import Episode
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.generation.torch_engine import TorchEngine
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutError, RolloutStats, plan_groups
from worldwise.rollouts.scheduler import play
from worldwise.rollouts.workers import WorkerError, WorkerPool, _shares, worker_count
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily

CONFIG = RolloutConfig(slots=3, max_tokens=40, max_turns=3)
AGENT = AgentConfig(restrict_to_admissible=True)
LENGTH = 2048

ORPHANS = """
import time
from worldwise.agents.config import AgentConfig
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.rollouts.config import RolloutConfig
from worldwise.rollouts.workers import WorkerPool
from worldwise.worlds.household.config import HouseholdConfig
from worldwise.worlds.household.family import HouseholdFamily
family = HouseholdFamily(HouseholdConfig())
pool = WorkerPool(tiny_model("qwen3", layers=1), tiny_tokenizer(), AgentConfig(), family, 2, 256, 2)
list(pool.play([], RolloutConfig(), "tiny"))
print(*pool.pids, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def household() -> HouseholdFamily:
    config = HouseholdConfig(
        rooms=("bathroom",), task_types=("pick_and_place_simple",), receptacles_min=4, receptacles_max=6,
        train_games=4, valid_seen_games=2, valid_unseen_games=2, layouts=4, unseen_layouts=2, max_turns=10,
    )  # fmt: skip
    return HouseholdFamily(config)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    torch.set_num_threads(1)
    return tiny_model("qwen3", layers=1, max_positions=LENGTH)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def pool(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, household: HouseholdFamily
) -> Iterator[WorkerPool]:
    made = WorkerPool(model, tokenizer, AGENT, household, CONFIG.slots, LENGTH, 2)
    yield made
    made.close()


@pytest.fixture
def plans(household: HouseholdFamily) -> list[EpisodePlan]:
    return plan_groups(household.tasks("train", 4), 4, "collect", 0, seed=1)


def alone(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    household: HouseholdFamily,
    plans: Sequence[EpisodePlan],
    stats: RolloutStats | None = None,
) -> list[Episode]:
    engine = TorchEngine(model, capacity=CONFIG.slots, max_length=LENGTH)
    agent = Agent(tokenizer, AGENT, household)
    return list(play(household, engine, agent, plans, CONFIG, "tiny", stats=stats))


def assert_same(episodes: Sequence[Episode], others: Sequence[Episode]) -> None:
    """Equal in everything; log-probabilities and entropies to float noise between batch shapes."""
    assert [episode.episode_id for episode in episodes] == [other.episode_id for other in others]
    for episode, other in zip(episodes, others, strict=True):
        assert replace(episode, turns=()) == replace(other, turns=())
        assert len(episode.turns) == len(other.turns)
        for turn, twin in zip(episode.turns, other.turns, strict=True):
            assert turn.context_ids.tolist() == twin.context_ids.tolist()
            assert turn.response_ids.tolist() == twin.response_ids.tolist()
            assert (turn.observation, turn.action, turn.reward) == (twin.observation, twin.action, twin.reward)
            np.testing.assert_allclose(turn.logprobs, twin.logprobs, atol=1e-5)
            np.testing.assert_allclose(turn.entropies, twin.entropies, atol=1e-5)


def gone(pids: Sequence[int], seconds: float = 10.0) -> bool:
    """Whether the processes end within some seconds."""

    def lives(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    limit = time.monotonic() + seconds
    while any(lives(pid) for pid in pids):
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def test_the_same_episodes_in_the_same_order(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    household: HouseholdFamily,
    pool: WorkerPool,
    plans: list[EpisodePlan],
) -> None:
    counted, expected, told = RolloutStats(), RolloutStats(), []
    episodes = list(pool.play(plans, CONFIG, "tiny", lambda done, total: told.append((done, total)), counted))
    assert_same(episodes, alone(model, tokenizer, household, plans, expected))
    assert told == [(done, 16) for done in range(1, 17)]
    assert counted.episodes == 16
    for name in ("turns", "context_tokens", "sampled_tokens", "rejected"):
        assert getattr(counted, name) == getattr(expected, name)
    assert counted.prefix_tokens <= expected.prefix_tokens, "groups are played whole"
    assert counted.engine_seconds > 0.0


def test_trained_weights_reach_the_workers_without_a_copy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    household: HouseholdFamily,
    pool: WorkerPool,
    plans: list[EpisodePlan],
) -> None:
    before = list(pool.play(plans, CONFIG, "tiny"))
    pids = pool.pids
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(2):
        model(input_ids=torch.tensor([[5, 6, 7]])).logits.square().mean().backward()
        optimizer.step()
    pool.refresh()
    after = list(pool.play(plans, CONFIG, "tiny"))
    assert pool.pids == pids
    assert [len(episode.turns[0].response_ids) for episode in before] != [
        len(episode.turns[0].response_ids) for episode in after
    ]
    assert_same(after, alone(model, tokenizer, household, plans))


def test_a_refusal_arrives_as_it_is_and_ends_the_pool(pool: WorkerPool, plans: list[EpisodePlan]) -> None:
    list(pool.play(plans[:2], CONFIG, "tiny"))
    pids = pool.pids
    tight = CONFIG.model_copy(update={"max_episode_tokens": 50})
    with pytest.raises(RolloutError, match="max_episode_tokens=50") as caught:
        list(pool.play(plans, tight, "tiny"))
    assert "Traceback" in str(caught.value.__cause__)
    assert "_start" in str(caught.value.__cause__)
    assert pool.pids == []
    assert len(pids) == 2
    assert gone(pids)
    assert len(list(pool.play(plans[:2], CONFIG, "tiny"))) == 2


def test_an_error_arrives_with_its_traceback(pool: WorkerPool) -> None:
    with pytest.raises(WorkerError, match=r"worker \d") as caught:
        list(pool.map(operator.truediv, [1, 2]))
    assert "Traceback" in str(caught.value)
    assert "TypeError: unsupported operand" in str(caught.value)
    assert pool.pids == []


def test_a_worker_killed_in_play_is_named(pool: WorkerPool, plans: list[EpisodePlan]) -> None:
    list(pool.play(plans[:2], CONFIG, "tiny"))
    pids = pool.pids
    os.kill(pids[0], signal.SIGSTOP)

    def kill(done: int, total: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)

    with pytest.raises(WorkerError, match=rf"worker 1 \(process {pids[0]}\).*SIGKILL.*rollout.slots"):
        list(pool.play(plans, CONFIG, "tiny", kill))
    assert gone(pids)


def test_a_worker_killed_between_plays_is_named(pool: WorkerPool, plans: list[EpisodePlan]) -> None:
    list(pool.play(plans[:2], CONFIG, "tiny"))
    os.kill(pool.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"worker 2 .*SIGKILL"):
        list(pool.play(plans, CONFIG, "tiny"))


def test_workers_do_not_hear_ctrl_c_and_end_where_play_is_given_up(pool: WorkerPool, plans: list[EpisodePlan]) -> None:
    list(pool.play(plans[:2], CONFIG, "tiny"))
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    episodes = pool.play(plans, CONFIG, "tiny")
    assert next(episodes).episode_id == plans[0].episode_id
    assert pool.pids == pids
    episodes.close()  # type: ignore[attr-defined]
    assert pool.pids == []
    assert gone(pids)


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(psutil.pid_exists(pid) for pid in pids)
        parent.kill()
    assert gone(pids)


def test_shares_keep_groups_together_and_every_worker_busy(plans: list[EpisodePlan]) -> None:
    numbered = list(enumerate(plans))
    assert [[position for position, _ in share] for share in _shares(numbered, 2)] == [
        [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15],
    ]  # fmt: skip
    assert [[position for position, _ in share] for share in _shares(numbered[:4], 2)] == [[0, 2], [1, 3]]
    assert [[position for position, _ in share] for share in _shares(numbered[:1], 2)] == [[0], []]


def test_the_same_bits_every_time(pool: WorkerPool, plans: list[EpisodePlan]) -> None:
    """Whichever worker is faster: one is held up here, and plays the batches that it always plays."""
    first = list(pool.play(plans, CONFIG, "tiny"))
    slow = psutil.Process(pool.pids[0])
    again = pool.play(plans, CONFIG, "tiny")
    episodes = [next(again)]
    slow.suspend()
    time.sleep(0.5)
    slow.resume()
    episodes += again
    for episode, other in zip(first, episodes, strict=True):
        for turn, twin in zip(episode.turns, other.turns, strict=True):
            assert turn.response_ids.tolist() == twin.response_ids.tolist()
            assert turn.logprobs.tobytes() == twin.logprobs.tobytes()
            assert turn.entropies.tobytes() == twin.entropies.tobytes()


def test_worker_count(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 4)
    assert worker_count(1, model) == 1
    assert worker_count(2, model) == 2
    assert worker_count(8, model) == 3
    small = psutil.virtual_memory()._replace(total=5 * 2**30, available=2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: small)
    assert worker_count(None, model) == 2, "whatever else fills the memory now"
    elsewhere = tiny_model("llama", layers=1).to("meta")  # type: ignore[arg-type]
    assert worker_count(None, elsewhere) == 1
    with pytest.raises(RolloutError, match="workers=2"):
        worker_count(2, elsewhere)
