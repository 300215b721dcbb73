"""Sampling predictions of the next observation, and turning them into rows for the learner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worldwise.agents.agent import Agent
from worldwise.config import derive_seed
from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.episodes.transitions import Transition
from worldwise.generation.protocol import Completion, Engine, Request, Sampling
from worldwise.rollouts.player import Player
from worldwise.stages.actor import Actor
from worldwise.stages.errors import StageError

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled prediction.

    Attributes:
        completion: tokens, log-probabilities and entropies as the engine recorded them.
        text: the predicted observation, None where the response holds none in its tags.
    """

    completion: Completion
    text: str | None


@dataclass(frozen=True, slots=True)
class Wave:
    """Transitions that are predicted in one batch."""

    transitions: tuple[Transition, ...]
    tries: int
    sampling: Sampling
    seed: int


def predict(
    actor: Actor,
    transitions: Sequence[Transition],
    tries: int,
    sampling: Sampling,
    seed: int,
    progress: Progress | None = None,
) -> list[list[Sample]]:
    """Predictions of the next observation after each transition's action.

    A prompt goes through the model once however many tries follow, and what the turns of an episode have in
    common goes through it once as well. Every draw derives from (seed, transition id, try), so neither batch
    nor order matters.

    Args:
        actor: the weights that predict; all its slots must be free.
        transitions: what to predict.
        tries: predictions per transition, 1..capacity of the engine.
        sampling: how tokens are drawn.
        seed: of this call.
        progress: told (finished, all) transitions.

    Returns:
        Per transition, in the order given, `tries` samples.

    Raises:
        StageError: more tries than slots, or a prompt that does not fit the engine.
    """
    if not 1 <= tries <= actor.engine.capacity:
        raise StageError(
            f"{tries} predictions per prompt and rollout.slots is {actor.engine.capacity}: raise rollout.slots "
            "to at least the group size (or tries), or lower that"
        )
    check_prompts(actor, transitions)
    size, share = actor.engine.capacity // tries, -(-len(transitions) // _count(actor))
    places = list(_waves(transitions, max(1, min(size, share))))
    waves = [Wave(tuple(transitions[i] for i in place), tries, sampling, seed) for place in places]
    found: dict[int, list[Sample]] = {}
    for place, predicted in zip(places, _predicted(actor, waves), strict=True):
        found.update(zip(place, predicted, strict=True))
        if progress is not None:
            progress(len(found), len(transitions))
    return [found[index] for index in range(len(transitions))]


def _count(actor: Actor) -> int:
    """Processes that predict."""
    return 1 if actor.pool is None else actor.pool.count


def _predicted(actor: Actor, waves: Sequence[Wave]) -> Iterator[list[list[Sample]]]:
    """The samples of each wave, in order."""
    if actor.pool is not None and len(waves) > 1:
        return actor.pool.map(predict_wave, waves)
    return (_sample_wave(actor.engine, actor.agent, wave) for wave in waves)


def check_prompts(actor: Actor, transitions: Sequence[Transition]) -> None:
    """Check that the engine has room for every prompt and at least one token behind it.

    Raises:
        StageError: a prompt is too long; the longest is named.
    """
    if not transitions:
        return
    longest = max(transitions, key=lambda item: len(item.prompt_ids))
    length = len(actor.agent.predict_prompt(longest.prompt_ids))
    if length >= actor.engine.max_length:
        raise StageError(
            f"the prompt for a prediction after {longest.transition_id} has {length} tokens and the engine holds "
            f"{actor.engine.max_length}: lower rollout.max_episode_tokens and collect again"
        )


def target_row(transition: Transition, agent: Agent) -> TrainingSequence:
    """A row for supervised training: the prompt, then the true next observation in its tags as the response."""
    prompt = agent.predict_prompt(transition.prompt_ids)
    answer = agent.prediction_answer_ids(transition.next_observation)
    return _row(transition, prompt, [answer], [np.zeros(len(answer), dtype=np.float32)], [0.0], 1.0)


def prediction_row(
    transition: Transition,
    agent: Agent,
    samples: Sequence[Sample],
    advantages: Sequence[float] | NDArray[np.float64],
    temperature: float,
) -> TrainingSequence:
    """A tree row for policy training on predictions: the prompt once, every sample as a branch of its own.

    Args:
        transition: what was predicted.
        agent: that asked.
        samples: the sampled predictions.
        advantages: one per sample.
        temperature: the samples were drawn at, > 0.
    """
    return _row(
        transition,
        agent.predict_prompt(transition.prompt_ids),
        [sample.completion.token_ids for sample in samples],
        [sample.completion.logprobs for sample in samples],
        [float(value) for value in advantages],
        temperature,
    )


def _row(
    transition: Transition,
    prompt: NDArray[np.int32],
    answers: Sequence[NDArray[np.int32]],
    logprobs: Sequence[NDArray[np.float32]],
    advantages: Sequence[float],
    temperature: float,
) -> TrainingSequence:
    lengths = [len(answer) for answer in answers]
    total = len(prompt) + sum(lengths)
    roles = np.full(total, Role.RESPONSE, dtype=np.int8)
    roles[: len(prompt)] = Role.CONTEXT
    nothing = np.zeros(len(prompt), dtype=np.float32)
    branches = np.concatenate([np.zeros(len(prompt)), np.repeat(np.arange(len(answers)) + 1, lengths)])
    return TrainingSequence(
        sequence_id=transition.transition_id,
        group_id=transition.transition_id,
        token_ids=np.concatenate([prompt, *answers]).astype(np.int32),
        roles=roles,
        turns=np.full(total, transition.turn, dtype=np.int32),
        logprobs=np.concatenate([nothing, *logprobs]).astype(np.float32),
        advantages=np.concatenate([nothing, np.repeat(np.asarray(advantages), lengths)]).astype(np.float32),
        temperature=temperature,
        branches=branches.astype(np.int32) if len(answers) > 1 else None,
    )


def _waves(transitions: Sequence[Transition], size: int) -> Iterator[list[int]]:
    """Indices of the transitions of each wave; the turns of an episode go together, in their order."""
    order = sorted(range(len(transitions)), key=lambda i: (transitions[i].episode_id, transitions[i].turn, i))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _chains(prompts: Sequence[NDArray[np.int32]]) -> list[list[int]]:
    """Runs of neighbouring prompts each of which begins with the one before it."""
    chains: list[list[int]] = []
    for index, prompt in enumerate(prompts):
        before = prompts[index - 1] if index else prompt
        if index and len(before) < len(prompt) and np.array_equal(prompt[: len(before)], before):
            chains[-1].append(index)
        else:
            chains.append([index])
    return chains


def predict_wave(player: Player, wave: Wave) -> list[list[Sample]]:
    """The samples of a wave; what a worker process calls."""
    return _sample_wave(player.engine, player.agent, wave)


def _sample_wave(engine: Engine, agent: Agent, wave: Wave) -> list[list[Sample]]:
    items, tries = wave.transitions, wave.tries
    questions = [agent.predict_prompt(item.prompt_ids)[len(item.prompt_ids) :].tolist() for item in items]
    slots = _open_slots(engine, [item.prompt_ids for item in items], tries)
    try:
        requests = [
            Request(slot, question, derive_seed(wave.seed, item.transition_id, number))
            for own, question, item in zip(slots, questions, items, strict=True)
            for number, slot in enumerate(own)
        ]
        completions = engine.generate(requests, wave.sampling, agent.stop_ids)
    finally:
        # Youngest first: a slot that others grew out of is closed behind them and nothing has to be copied.
        for slot in sorted((slot for own in slots for slot in own), reverse=True):
            engine.close(slot)
    samples = [_read(completion, agent) for completion in completions]
    return [samples[start : start + tries] for start in range(0, len(samples), tries)]


def _open_slots(engine: Engine, prompts: Sequence[NDArray[np.int32]], tries: int) -> list[list[int]]:
    """`tries` slots per prompt that hold it; what prompts of a chain have in common is run once.

    The chain's own slot grows from prompt to prompt, the others are forked off it; it serves the last prompt.
    """
    chains = _chains(prompts)
    stems = [engine.open() for _ in chains]
    slots: list[list[int]] = [[] for _ in prompts]
    for step in range(max(map(len, chains), default=0)):
        growing = [(stem, chain) for stem, chain in zip(stems, chains, strict=True) if step < len(chain)]
        held = {stem: len(prompts[chain[step - 1]]) if step else 0 for stem, chain in growing}
        engine.extend({stem: prompts[chain[step]][held[stem] :].tolist() for stem, chain in growing})
        for stem, chain in growing:
            own = [stem] if step == len(chain) - 1 else []
            slots[chain[step]] = own + [engine.fork(stem) for _ in range(tries - len(own))]
    return slots


def _read(completion: Completion, agent: Agent) -> Sample:
    return Sample(completion, agent.parse_prediction(agent.decode(completion.token_ids)))
