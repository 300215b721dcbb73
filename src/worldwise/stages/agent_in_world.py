"""Agent-In-World in policy RL: judge failed groups, remember them, find tasks like them, choose what is played next."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldwise.agents.agent import Agent, IntArray
from worldwise.agents.parsing import read_reflection, read_selection
from worldwise.algorithms.agent_in_world import (
    Failure,
    FailureMemory,
    TaskWeights,
    draw_tasks,
    entropy,
    largest_entropy,
    shuffled_weights,
    task_probabilities,
)
from worldwise.config import derive_seed
from worldwise.episodes.record import Episode
from worldwise.generation.protocol import Request, Sampling
from worldwise.stages.actor import Actor
from worldwise.stages.agent_in_world_config import AgentInWorldConfig
from worldwise.stages.encoder import Encoder
from worldwise.worlds.contract import Past, Task, WorldFamily

_logger = logging.getLogger(__name__)

Numbers = dict[str, float]


@dataclass
class Tally:
    """What an iteration's judging came to.

    Attributes:
        modes: mode -> failures.
        asked, read: judgements that the model was asked for, and that could be read.
        looked, found: searches by the model, and those that could be read.
        hits: tasks that gained weight.
    """

    modes: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    read: int = 0
    looked: int = 0
    found: int = 0
    hits: int = 0


class AgentInWorld:
    """The curriculum of one training.

    Args:
        config: settings.
        family: names failures and judges them by rules.
        tasks: all training tasks.
        seed: of everything random here.
        encoder: of `embedding`; None elsewhere.
    """

    def __init__(
        self,
        config: AgentInWorldConfig,
        family: WorldFamily,
        tasks: Sequence[Task],
        seed: int,
        encoder: Encoder | None = None,
    ) -> None:
        self._config, self._family, self._seed, self._encoder = config, family, seed, encoder
        self._tasks = list(tasks)
        self._names = [task.task_id for task in tasks]
        self.memory = FailureMemory(config.per_mode)
        self.weights = TaskWeights(config.decay, config.cap)

    def choose(self, count: int, iteration: int) -> tuple[list[Task], Numbers]:
        """The tasks of an iteration, and what curves show of their choice.

        `task_entropy` (nats) and `task_entropy_share` (of the largest possible); `task_weights`: tasks with a weight.
        """
        rng = self._rng("choose", iteration)
        weights = self.weights.weights
        if self._config.weights == "shuffled":
            weights = shuffled_weights(weights, self._names, self._rng("shuffle", iteration))
        probabilities = task_probabilities(self._names, weights, self._config.eta)
        chosen = [self._tasks[int(place)] for place in draw_tasks(probabilities, count, rng)]
        nats = entropy(probabilities)
        most = largest_entropy(len(self._tasks))
        numbers = {
            "task_entropy": nats,
            "task_entropy_share": nats / most if most > 0.0 else 1.0,
            "task_weights": float(len(weights)),
        }
        return chosen, numbers

    def learn(self, episodes: Sequence[Episode], actor: Actor, iteration: int) -> Numbers:
        """Judge an iteration's failures and change the weights.

        Returns:
            `failures_<mode>`: failures judged so; `failures_judged`, `failures_by_model` (share whose judgement the
            model gave), `reflections_unread`, `selections_unread` (shares of the model's answers that could not be
            read), `tasks_raised` (found to be like one that failed), `failures_remembered`.
        """
        groups: dict[str, list[Episode]] = {}
        for episode in episodes:
            if episode.reward_valid and episode.turns:
                groups.setdefault(episode.group_id, []).append(episode)
        self.weights.age()
        failed = []
        for members in groups.values():
            losers = [episode for episode in members if not episode.success]
            if losers:
                failed.append(losers[0])
            else:
                self.weights.halve(members[0].task_id)
                self.memory.forget(members[0].task_id)
        order = self._rng("failures", iteration).permutation(len(failed))[: self._config.reflections]
        chosen = [failed[int(place)] for place in sorted(order)]
        tally = Tally()
        failures = self._judged(chosen, actor, iteration, tally)
        for failure in failures:
            self.memory.add(failure)
        for failure, similar in zip(failures, self._like(failures, actor, iteration, tally), strict=True):
            self.weights.add(failure.task_id, self._config.own_amount)
            for other in similar:
                self.weights.add(other.task_id, self._config.amount)
                tally.hits += 1
        return self._numbers(tally, len(failures))

    def content(self) -> dict[str, Any]:
        """Memory and weights, as JSON holds them."""
        return {"memory": self.memory.content(), "weights": dict(self.weights.weights)}

    def take(self, content: dict[str, Any]) -> None:
        """Takes back what `content` gave."""
        self.memory.take(content["memory"])
        self.weights.weights = {str(task): float(weight) for task, weight in content["weights"].items()}

    def _judged(self, episodes: Sequence[Episode], actor: Actor, iteration: int, tally: Tally) -> list[Failure]:
        modes = self._family.failure_modes
        answers: list[str | None] = [None] * len(episodes)
        if self._by_model(actor.agent):
            prompts = [self._reflection(episode, actor, modes) for episode in episodes]
            answers = self._ask(prompts, actor, "reflect", iteration)
            tally.asked += sum(prompt is not None for prompt in prompts)
        failures = []
        for episode, answer in zip(episodes, answers, strict=True):
            said = None if answer is None else read_reflection(answer, modes)
            tally.read += said is not None
            failures.append(self._failure(episode, said, iteration))
            tally.modes[failures[-1].mode] += 1
        return failures

    def _failure(self, episode: Episode, said: dict[str, str] | None, iteration: int) -> Failure:
        text = self._family.task_text(episode.turns[0].observation)
        if said is not None:
            turn = int(said["turn"] or 0)
            return Failure(
                task_id=episode.task_id,
                task_text=text,
                mode=said["mode"],
                detail=said["detail"],
                turn=turn if turn <= len(episode.turns) else 0,
                lesson=said["lesson"],
                query=said["query"],
                iteration=iteration,
                by="model",
            )
        past = [
            Past(turn.observation, turn.action, turn.next_observation, turn.accepted, turn.format_valid)
            for turn in episode.turns
        ]
        return Failure(episode.task_id, text, self._family.failure_mode(past), query=text, iteration=iteration)

    def _reflection(self, episode: Episode, actor: Actor, modes: Sequence[str]) -> IntArray | None:
        """The question about an episode, without its first turns where all do not fit; None where nothing fits."""
        room = actor.engine.max_length - self._config.max_tokens
        for skipped in range(len(episode.turns)):
            prompt = actor.agent.reflect_prompt(episode.turns, modes, skipped)
            if len(prompt) <= room:
                return prompt
        return None

    def _like(self, failures: Sequence[Failure], actor: Actor, iteration: int, tally: Tally) -> list[list[Failure]]:
        """For each failure the remembered ones of other tasks that are like it."""
        most = self._config.retrieved
        offered = [self.memory.candidates(failure, self._config.candidates) for failure in failures]
        wanted = self._config.retrieval
        if wanted == "auto":
            wanted = "model" if self._by_model(actor.agent) else "mode"
        if wanted == "embedding":
            return [self._nearest(failure, own, most) for failure, own in zip(failures, offered, strict=True)]
        same = [
            [other for other in own if other.mode == failure.mode][:most]
            for failure, own in zip(failures, offered, strict=True)
        ]
        if wanted == "mode" or not actor.agent.can_reflect:
            return same
        prompts = [
            self._selection(failure, own, actor) if own else None
            for failure, own in zip(failures, offered, strict=True)
        ]
        answers = self._ask(prompts, actor, "select", iteration)
        found = []
        for answer, own, fallback in zip(answers, offered, same, strict=True):
            numbers = None if answer is None else read_selection(answer, len(own))
            tally.looked += answer is not None
            tally.found += numbers is not None
            found.append(fallback if numbers is None else [own[number - 1] for number in numbers[:most]])
        return found

    def _selection(self, failure: Failure, offered: Sequence[Failure], actor: Actor) -> IntArray | None:
        room = actor.engine.max_length - self._config.max_tokens
        shown = [(own.task_text, own.mode, own.detail) for own in offered]
        for count in range(len(shown), 0, -1):
            prompt = actor.agent.select_prompt(
                failure.task_text, failure.mode, failure.detail, shown[:count], self._config.retrieved
            )
            if len(prompt) <= room:
                return prompt
        return None

    def _nearest(self, failure: Failure, offered: Sequence[Failure], most: int) -> list[Failure]:
        assert self._encoder is not None
        if not offered:
            return []
        # One text at a time: the last bits of a vector depend on what is embedded beside it.
        query = self._encoder.encode([failure.query or failure.task_text])[0]
        vectors = np.stack([self._encoder.encode([f"{own.task_text} {own.detail}".strip()])[0] for own in offered])
        order = np.argsort(-(vectors @ query), kind="stable")[:most]
        return [offered[int(place)] for place in order]

    def _ask(self, prompts: Sequence[IntArray | None], actor: Actor, what: str, iteration: int) -> list[str | None]:
        """The model's answers, as many at once as the engine takes; None without a prompt."""
        config, engine = self._config, actor.engine
        sampling = Sampling(temperature=config.temperature, max_tokens=config.max_tokens)
        asked = [(place, prompt) for place, prompt in enumerate(prompts) if prompt is not None]
        answers: list[str | None] = [None] * len(prompts)
        for start in range(0, len(asked), engine.capacity):
            part = asked[start : start + engine.capacity]
            slots = [engine.open() for _ in part]
            try:
                requests = [
                    Request(slot, prompt.tolist(), derive_seed(self._seed, what, iteration, place))
                    for slot, (place, prompt) in zip(slots, part, strict=True)
                ]
                for (place, _), said in zip(
                    part, engine.generate(requests, sampling, actor.agent.stop_ids), strict=True
                ):
                    answers[place] = actor.agent.decode(said.token_ids)
            finally:
                for slot in slots:
                    engine.close(slot)
        return answers

    def _by_model(self, agent: Agent) -> bool:
        return agent.can_reflect and self._config.judge in ("auto", "model")

    def _numbers(self, tally: Tally, judged: int) -> Numbers:
        numbers = {f"failures_{mode}": float(tally.modes[mode]) for mode in self._family.failure_modes}
        return numbers | {
            "failures_judged": float(judged),
            "failures_by_model": tally.read / judged if judged else 0.0,
            "reflections_unread": 1.0 - tally.read / tally.asked if tally.asked else 0.0,
            "selections_unread": 1.0 - tally.found / tally.looked if tally.looked else 0.0,
            "tasks_raised": float(tally.hits),
            "failures_remembered": float(sum(self.memory.counts().values())),
        }

    def _rng(self, name: str, iteration: int) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self._seed, name, iteration))
