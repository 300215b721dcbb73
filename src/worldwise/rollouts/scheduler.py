"""Live episodes x engine x world: batched play in which finished episodes make room at once."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from worldwise.agents.agent import Agent, Context
from worldwise.config import derive_seed
from worldwise.episodes.record import INFRASTRUCTURE_FAILURES, Episode, Prediction, Termination, Turn
from worldwise.generation.completions import check_completions
from worldwise.generation.protocol import Completion, Engine, Request, Sampling
from worldwise.rollouts.config import EpisodePlan, RolloutConfig, RolloutError, RolloutStats
from worldwise.rollouts.foresight import Foresight, Question
from worldwise.rollouts.patience import Patience, StepTimeout
from worldwise.rollouts.restriction import Restrictions
from worldwise.worlds.answers import check_answer
from worldwise.worlds.contract import Info, Step, Task, World, WorldFamily

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def play(
    family: WorldFamily,
    engine: Engine,
    agent: Agent,
    plans: Sequence[EpisodePlan],
    config: RolloutConfig,
    model_version: str,
    progress: Progress | None = None,
    stats: RolloutStats | None = None,
) -> Iterator[Episode]:
    """Plays the planned episodes and yields them in the plan's order, each as early as that order allows.

    What an episode holds depends on its plan, the weights and the configuration, not on the number of
    slots or on what else is played (up to the engine's own float noise between batch shapes).

    A world that raises or answers with what is no answer ends its episode as `world_error`, one that hangs as
    `timeout`, both with `reward_valid` False; the rest goes on. An engine that does so ends the episodes of that
    batch as `engine_error`; if it fails at the next batch as well, the error goes through to the caller.

    Args:
        family: the world.
        engine: an engine with at least one free slot; slots are given back at the end.
        agent: prompts and parsing.
        plans: what to play.
        config: how to play.
        model_version: name of the weights, for the record.
        progress: told (finished, planned) after every finished episode.
        stats: counters to add to.

    Raises:
        RolloutError: a first prompt with one response does not fit the engine or `max_episode_tokens`.
    """
    scheduler = Scheduler(family, engine, agent, plans, config, model_version, stats or RolloutStats())
    finished: dict[int, Episode] = {}
    following = 0
    try:
        while scheduler.busy:
            for position, episode in scheduler.advance():
                finished[position] = episode
                if progress is not None:
                    progress(following + len(finished), len(plans))
            while following in finished:
                yield finished.pop(following)
                following += 1
    finally:
        scheduler.close()


@dataclass(slots=True, eq=False)
class _Live:
    """An episode in play."""

    position: int
    plan: EpisodePlan
    world: World
    slot: int
    temperature: float
    started: float
    observation: str
    info: Info
    context: Context | None = None
    turns: list[Turn] = field(default_factory=list)
    held: int = 0
    spent: int = 0


class Scheduler:
    """Plays plans in an engine's slots; the parameters are those of `play`."""

    def __init__(
        self,
        family: WorldFamily,
        engine: Engine,
        agent: Agent,
        plans: Sequence[EpisodePlan],
        config: RolloutConfig,
        model_version: str,
        stats: RolloutStats,
    ) -> None:
        self._family, self._engine, self._agent, self._config = family, engine, agent, config
        self._model_version, self._stats = model_version, stats
        self._waiting: deque[tuple[int, EpisodePlan]] = deque(enumerate(plans))
        self._live: list[_Live] = []
        self._restrictions = Restrictions(agent) if agent.config.restrict_to_admissible else None
        self._keeps_admissible = agent.config.restrict_to_admissible or agent.config.list_admissible
        self._foresight = None
        if config.predictions:
            self._foresight = Foresight(engine, agent, config.predictions, config.prediction_tokens)
        self._patience = Patience(config.step_timeout_s)
        self._max_turns = config.max_turns or 0
        self._engine_failed = False
        self._failures_told: set[str] = set()
        self._done: list[tuple[int, Episode]] = []
        self._slots = min(config.slots, engine.capacity)

    @property
    def busy(self) -> bool:
        """Something is live or waits."""
        return bool(self._live or self._waiting)

    def add(self, plans: Iterable[tuple[int, EpisodePlan]]) -> None:
        """More to play, each with the position that its episode comes back with."""
        self._waiting.extend(plans)

    def close(self) -> None:
        """Gives back all slots."""
        for live in self._live:
            self._engine.close(live.slot)
        self._live = []
        self._patience.close()

    def advance(self) -> list[tuple[int, Episode]]:
        """One response for every live episode; returns the episodes that ended meanwhile, with positions."""
        begun = time.perf_counter()
        elsewhere = self._stats.engine_seconds + self._stats.world_seconds + self._stats.prediction_seconds
        self._done = []
        while self._waiting and len(self._live) < self._slots:
            room = min(len(self._waiting), self._slots - len(self._live))
            self._start([self._waiting.popleft() for _ in range(room)])
        batches: dict[float, list[_Live]] = {}
        for live in self._live:
            batches.setdefault(live.temperature, []).append(live)
        for temperature, batch in batches.items():
            completions = self._generate(batch, temperature)
            foreseen = self._foresee(batch, completions, temperature)
            answers = self._step(batch, completions)
            for live, completion, answer in zip(batch, completions, answers, strict=True):
                self._answer(live, completion, answer, foreseen.get(live.position, ()))
        inside = self._stats.engine_seconds + self._stats.world_seconds + self._stats.prediction_seconds - elsewhere
        self._stats.other_seconds += time.perf_counter() - begun - inside
        return self._done

    def _start(self, plans: Sequence[tuple[int, EpisodePlan]]) -> None:
        """Begins episodes; those whose world fails end at once."""
        worlds = [self._family.new() for _ in plans]
        calls = [
            partial(_checked_reset, world, plan.task, plan.world_seed)
            for world, (_, plan) in zip(worlds, plans, strict=True)
        ]
        started = time.perf_counter()
        answers = self._patience.call_all(calls)
        self._stats.world_seconds += time.perf_counter() - started
        for world, (position, plan), answer in zip(worlds, plans, answers, strict=True):
            temperature = self._config.temperature if plan.temperature is None else plan.temperature
            live = _Live(position, plan, world, -1, temperature, started, "", Info(False, 0.0, True, None))
            if isinstance(answer, Exception):
                self._fail(live, answer)
            else:
                live.observation, live.info = answer
                self._enter(live)

    def _enter(self, live: _Live) -> None:
        """Gives an episode its first prompt and a slot."""
        plan = live.plan
        context = self._agent.first_context(live.observation, live.info)
        if not self._fits(live, context):
            raise RolloutError(
                f"the first prompt of {plan.task.task_id} has {len(context.ids)} tokens; with a response of "
                f"up to rollout.max_tokens={self._config.max_tokens} it exceeds the engine's length of "
                f"{self._engine.max_length} tokens or rollout.max_episode_tokens="
                f"{self._config.max_episode_tokens}: raise these, or lower rollout.max_tokens"
            )
        live.context = context
        live.slot = self._engine.open()
        self._live.append(live)

    def _fits(self, live: _Live, context: Context) -> bool:
        """Whether the context and a response of full length have room in slot and budget."""
        needed = len(context.ids) + self._config.max_tokens
        held = 0 if context.restart else live.held
        budget = self._config.max_episode_tokens
        return held + needed <= self._engine.max_length and (budget is None or live.spent + needed <= budget)

    def _generate(self, batch: Sequence[_Live], temperature: float) -> list[Completion | None]:
        config = self._config
        sampling = self._sampling(temperature)
        requests = [self._request(live) for live in batch]
        before = self._engine.stats.prefix_tokens
        begun = time.perf_counter()
        completions: list[Completion | None]
        try:
            answers = list(self._engine.generate(requests, sampling, self._agent.stop_ids))
            check_completions(answers, requests, config.max_tokens)
            completions = list(answers)
        except Exception:
            if self._engine_failed:
                raise
            logger.exception("the engine failed; the %d episodes of this batch end as engine_error", len(batch))
            self._engine_failed = True
            completions = [None] * len(batch)
        else:
            self._engine_failed = False
        self._stats.engine_seconds += time.perf_counter() - begun
        self._stats.prefix_tokens += self._engine.stats.prefix_tokens - before
        return completions

    def _sampling(self, temperature: float) -> Sampling:
        config = self._config
        return Sampling(temperature=temperature, top_p=config.top_p, min_p=config.min_p, max_tokens=config.max_tokens)

    def _foresee(
        self, batch: Sequence[_Live], completions: Sequence[Completion | None], temperature: float
    ) -> dict[int, tuple[Prediction, ...]]:
        """Position of an episode -> what the model expects after the response that it has just given."""
        if self._foresight is None:
            return {}
        asked: dict[int, Question] = {}
        for live, completion in zip(batch, completions, strict=True):
            if completion is not None and len(completion.token_ids):
                seed = derive_seed(live.plan.seed, len(live.turns), "predict")
                finished = int(completion.token_ids[-1]) in self._agent.stop_ids
                asked[live.position] = Question(live.slot, finished, seed)
        foresight, stats = self._foresight, self._stats
        begun, tokens, count = time.perf_counter(), foresight.tokens, foresight.asked
        found = foresight.ask(list(asked.values()), self._sampling(temperature))
        stats.prediction_seconds += time.perf_counter() - begun
        stats.predicted_tokens += foresight.tokens - tokens
        stats.predictions += foresight.asked - count
        return dict(zip(asked, found, strict=True))

    def _request(self, live: _Live) -> Request:
        assert live.context is not None
        if live.context.restart and live.turns:
            self._engine.clear(live.slot)
            self._stats.restarts += 1
        allowed = None
        if self._restrictions is not None:
            allowed = self._restrictions.trie(live.info.admissible or ())
        seed = derive_seed(live.plan.seed, len(live.turns))
        return Request(live.slot, live.context.ids.tolist(), seed, allowed=allowed)

    def _step(self, batch: Sequence[_Live], completions: Sequence[Completion | None]) -> list[Step | Exception | None]:
        """The worlds' answers to the responses, or what they raised; None where there is no response."""
        calls: list[Callable[[], Step]] = []
        for live, completion in zip(batch, completions, strict=True):
            if completion is not None:
                action = self._agent.parse(completion.token_ids).action
                calls.append(partial(_checked_step, live.world, action))
        begun = time.perf_counter()
        answers = iter(self._patience.call_all(calls))
        self._stats.world_seconds += time.perf_counter() - begun
        return [None if completion is None else next(answers) for completion in completions]

    def _answer(
        self,
        live: _Live,
        completion: Completion | None,
        answer: Step | Exception | None,
        foreseen: tuple[Prediction, ...],
    ) -> None:
        """Notes the turn and prepares the next one, or ends the episode."""
        if completion is None or answer is None:
            self._end(live, Termination.ENGINE_ERROR)
            return
        if isinstance(answer, Exception):
            self._fail(live, answer)
            return
        assert live.context is not None
        context, said = live.context, self._agent.parse(completion.token_ids)
        index = len(live.turns)
        capped = index + 1 == self._max_turns and not answer.terminated
        turn = Turn(
            index=index,
            observation=live.observation,
            context_ids=context.ids,
            restart=context.restart,
            observation_span=context.observation_span,
            response_ids=completion.token_ids,
            logprobs=completion.logprobs,
            entropies=completion.entropies,
            response_text=said.text,
            action=said.action,
            action_span=said.action_span,
            format_valid=said.format_valid,
            finished=said.finished,
            accepted=answer.info.accepted,
            reward=answer.reward,
            progress=answer.info.progress,
            next_observation=answer.observation,
            terminated=answer.terminated,
            truncated=answer.truncated or capped,
            admissible=tuple(live.info.admissible or ()) if self._keeps_admissible else None,
            predictions=foreseen,
        )
        live.turns.append(turn)
        used = len(context.ids) + len(completion.token_ids)
        live.held = used if context.restart else live.held + used
        live.spent += used
        live.observation, live.info = answer.observation, answer.info
        self._continue(live, turn)

    def _continue(self, live: _Live, turn: Turn) -> None:
        limit = self._config.episode_timeout_s
        if turn.terminated:
            self._end(live, Termination.SOLVED if live.info.success else Termination.FAILED)
        elif turn.truncated:
            self._end(live, Termination.TURN_LIMIT)
        elif limit and time.perf_counter() - live.started > limit:
            logger.warning("%s took longer than episode_timeout_s=%s", live.plan.episode_id, limit)
            self._end(live, Termination.TIMEOUT)
        else:
            live.context = self._agent.next_context(live.turns, live.observation, live.info)
            if not self._fits(live, live.context):
                self._end(live, Termination.TOKEN_LIMIT)

    def _fail(self, live: _Live, error: Exception) -> None:
        """Records what broke in the world; the first failure of a kind with where it happened."""
        kind = type(error).__name__
        if kind not in self._failures_told:
            self._failures_told.add(kind)
            logger.warning("%s: the world failed: %s", live.plan.episode_id, error, exc_info=error)
        else:
            logger.info("%s: the world failed again with %s", live.plan.episode_id, kind)
        self._end(live, Termination.TIMEOUT if isinstance(error, StepTimeout) else Termination.WORLD_ERROR)

    def _end(self, live: _Live, termination: Termination) -> None:
        """Gives back the slot, if one was opened yet, and files the episode."""
        if live.slot >= 0:
            self._live.remove(live)
            self._engine.close(live.slot)
        episode = self._episode(live, termination)
        self._count(episode)
        self._done.append((live.position, episode))

    def _episode(self, live: _Live, termination: Termination) -> Episode:
        plan = live.plan
        broken = termination in INFRASTRUCTURE_FAILURES
        return Episode(
            episode_id=plan.episode_id,
            group_id=plan.group_id,
            world=self._family.name,
            task_id=plan.task.task_id,
            task_type=plan.task.task_type,
            split=plan.task.split,
            sample=plan.sample,
            iteration=plan.iteration,
            seed=plan.seed,
            model_version=self._model_version,
            turns=tuple(live.turns),
            termination=termination,
            success=termination is Termination.SOLVED,
            progress=live.info.progress,
            reward_valid=not broken,
            temperature=live.temperature,
            restricted=self._restrictions is not None,
            context=self._agent.config.context,
            world_seed=plan.world_seed,
        )

    def _count(self, episode: Episode) -> None:
        stats = self._stats
        stats.episodes += 1
        stats.failures += not episode.reward_valid
        for turn in episode.turns:
            stats.turns += 1
            stats.invalid += not turn.format_valid
            stats.unfinished += not turn.finished
            stats.rejected += not turn.accepted
            stats.context_tokens += len(turn.context_ids) + (not turn.restart)
            stats.sampled_tokens += len(turn.response_ids)


def _checked_step(world: World, action: str) -> Step:
    answer = world.step(action)
    check_answer(answer.observation, answer.info, answer.reward)
    return answer


def _checked_reset(world: World, task: Task, seed: int) -> tuple[str, Info]:
    observation, info = world.reset(task, seed)
    check_answer(observation, info)
    return observation, info
