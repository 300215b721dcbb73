"""The rules that `check_world` checks, each by name: what `contract.py` asks of a world."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from worldwise.worlds.contract import Info, ScriptedPolicy, Step, Task, World, WorldError, WorldFamily

NONSENSE = "xyzzy no such action 404"
"""An action that no world understands."""
UNKNOWN_SPLIT = "no_such_split"
ORACLE_SUCCESS_AT_LEAST = 0.75
"""Share of the tasks that the oracle has to solve."""
_STATES_PROBED = 6
_ACTIONS_PROBED = 12
_SEED = 11


@dataclass(frozen=True, slots=True)
class Played:
    """One episode as it went: the first answer, then every action with its answer.

    It stops where an answer is malformed; `whole` is False then.
    """

    task: Task
    first: tuple[str, Info]
    turns: tuple[tuple[str, Step], ...]
    whole: bool = True

    @property
    def ended(self) -> bool:
        """The world ended it."""
        return bool(self.turns) and (self.turns[-1][1].terminated or self.turns[-1][1].truncated)

    @property
    def actions(self) -> list[str]:
        return [action for action, _ in self.turns]

    @property
    def solved(self) -> bool:
        return bool(self.turns) and self.turns[-1][1].info.success


@dataclass(slots=True)
class Check:
    """What the rules look at. The first rules fill in the tasks and the episodes of both policies."""

    family: WorldFamily
    split: str
    episodes: int
    tasks: Sequence[Task] = ()
    random: tuple[Played, ...] = ()
    oracle: tuple[Played, ...] = ()
    faults: list[str] = field(default_factory=list)

    @property
    def played(self) -> tuple[Played, ...]:
        return self.random + self.oracle


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _play_all(check: Check, policy: ScriptedPolicy) -> tuple[Played, ...]:
    world = check.family.new()
    return tuple(_play(check, world, task, policy) for task in check.tasks)


def _play(check: Check, world: World, task: Task, policy: ScriptedPolicy) -> Played:
    observation, info = first = world.reset(task, _SEED)
    faults = list(_first_faults(observation, info))
    turns: list[tuple[str, Step]] = []
    while not faults and len(turns) < check.family.max_turns:
        action = policy.act(world, observation, info)
        step = world.step(action)
        faults += _step_faults(step, f"step({action!r})")
        if faults:
            break
        turns.append((action, step))
        observation, info = step.observation, step.info
        if step.terminated or step.truncated:
            break
    check.faults += faults
    return Played(task, first, tuple(turns), not faults)


def _replay(world: World, task: Task, actions: Sequence[str]) -> tuple[tuple[str, Info], list[Step]]:
    return world.reset(task, _SEED), [world.step(action) for action in actions]


def _refuses_to_step(world: World) -> bool:
    try:
        world.step(NONSENSE)
    except RuntimeError:
        return True
    return False


# Rules about tasks.


def _tasks_are_listed(check: Check) -> Iterator[str]:
    check.tasks = list(check.family.tasks(check.split, check.episodes))
    if len(check.tasks) != check.episodes:
        yield f"tasks({check.split!r}, {check.episodes}) gave {len(check.tasks)} tasks"
    if check.split not in check.family.splits:
        yield f"split {check.split!r} is not among splits {check.family.splits!r}"
    for task in check.tasks:
        if not (isinstance(task, Task) and task.task_id and task.task_type):
            yield f"{task!r} is no Task with an id and a type"
        elif task.split != check.split:
            yield f"task {task.task_id!r} says split={task.split!r}, but {check.split!r} was asked for"


def _tasks_are_unique(check: Check) -> Iterator[str]:
    ids = [task.task_id for task in check.tasks]
    doubled = sorted({task_id for task_id in ids if ids.count(task_id) > 1})
    if doubled:
        yield f"task ids {doubled!r} occur more than once"


def _tasks_are_stable(check: Check) -> Iterator[str]:
    again = list(check.family.tasks(check.split, len(check.tasks)))
    if again != list(check.tasks):
        yield "asking twice for the same tasks gave different ones"
    fewer = list(check.family.tasks(check.split, 1))
    if fewer != list(check.tasks[:1]):
        yield "the first task depends on how many are asked for"


def _unknown_split_is_refused(check: Check) -> Iterator[str]:
    try:
        check.family.tasks(UNKNOWN_SPLIT, 1)
    except WorldError:
        return
    yield f"tasks({UNKNOWN_SPLIT!r}) has to raise WorldError"


# Rules about what an answer is.


def _answers_are_typed(check: Check) -> Iterator[str]:
    yield from dict.fromkeys(check.faults)


def _first_faults(observation: str, info: Info) -> Iterator[str]:
    if not isinstance(observation, str):
        yield f"reset gave an observation of type {type(observation).__name__}, not str"
    yield from _info_faults(info, "reset")


def _step_faults(step: Step, where: str) -> Iterator[str]:
    if not isinstance(step, Step):
        yield f"{where} gave a {type(step).__name__}, not a Step"
        return
    if not isinstance(step.observation, str):
        yield f"{where} gave an observation of type {type(step.observation).__name__}, not str"
    if isinstance(step.reward, bool) or not isinstance(step.reward, int | float):
        yield f"{where} gave a reward of type {type(step.reward).__name__}, not float"
    for name, value in (("terminated", step.terminated), ("truncated", step.truncated)):
        if not isinstance(value, bool):
            yield f"{where} gave {name} of type {type(value).__name__}, not bool"
    if step.terminated and step.truncated:
        yield f"{where} is both terminated and truncated"
    yield from _info_faults(step.info, where)


def _info_faults(info: Info, where: str) -> Iterator[str]:
    if not isinstance(info, Info):
        yield f"{where} gave info of type {type(info).__name__}, not Info"
        return
    for name, value in (("success", info.success), ("accepted", info.accepted)):
        if not isinstance(value, bool):
            yield f"{where} gave info.{name} of type {type(value).__name__}, not bool"
    if info.admissible is not None and not all(isinstance(action, str) for action in info.admissible):
        yield f"{where} gave an info.admissible that holds something else than str"


def _rewards_are_in_range(check: Check) -> Iterator[str]:
    for played in check.played:
        rewards = [step.reward for _, step in played.turns]
        if not all(math.isfinite(reward) for reward in rewards):
            yield f"task {played.task.task_id!r} gave a reward that is not finite"
        elif sum(rewards) > check.family.max_return + 1e-9:
            yield (f"task {played.task.task_id!r} returned {sum(rewards)}, above max_return={check.family.max_return}")


def _progress_is_in_range(check: Check) -> Iterator[str]:
    for where, info in _infos(check):
        if not 0.0 <= info.progress <= 1.0:
            yield f"{where}: info.progress={info.progress} lies outside of 0..1"


def _progress_one_means_success(check: Check) -> Iterator[str]:
    for where, info in _infos(check):
        if (info.progress == 1.0) != info.success:
            yield f"{where}: info.progress={info.progress}, but info.success={info.success}"


def _infos(check: Check) -> Iterator[tuple[str, Info]]:
    for played in check.played:
        yield f"task {played.task.task_id!r}, reset", played.first[1]
        for turn, (_, step) in enumerate(played.turns, 1):
            yield f"task {played.task.task_id!r}, turn {turn}", step.info


def _reset_begins_unsolved(check: Check) -> Iterator[str]:
    for played in check.random:
        info = played.first[1]
        if info.success or not info.accepted:
            yield (
                f"task {played.task.task_id!r}: after reset info.success={info.success} and "
                f"info.accepted={info.accepted}; they have to be False and True"
            )


# Rules about one episode after another.


def _reset_is_deterministic(check: Check) -> Iterator[str]:
    for played in check.random:
        world = check.family.new()
        world.reset(check.tasks[0], _SEED)
        if world.reset(played.task, _SEED) != played.first:
            yield f"task {played.task.task_id!r} began otherwise the second time"


def _same_actions_same_episode(check: Check) -> Iterator[str]:
    for played in check.played:
        _, steps = _replay(check.family.new(), played.task, played.actions)
        for turn, (step, (action, before)) in enumerate(zip(steps, played.turns, strict=True), 1):
            if step != before:
                yield f"task {played.task.task_id!r}, turn {turn}: {action!r} was answered otherwise later"
                break


def _copies_are_independent(check: Check) -> Iterator[str]:
    for played in check.random:
        half = len(played.turns) // 2
        world = check.family.new()
        _replay(world, played.task, played.actions[:half])
        other = world.copy()
        rest = played.turns[half:]
        # The copy plays first; an original that shares state with it then answers otherwise.
        if [other.step(action) for action, _ in rest] != [step for _, step in rest]:
            yield f"task {played.task.task_id!r}: a copy does not go on as its original"
        if [world.step(action) for action, _ in rest] != [step for _, step in rest]:
            yield f"task {played.task.task_id!r}: playing a copy changed the original"


def _pickles_round_trip(check: Check) -> Iterator[str]:
    for played in check.random:
        half = len(played.turns) // 2
        world = check.family.new()
        _replay(world, played.task, played.actions[:half])
        other = pickle.loads(pickle.dumps(world))
        rest = played.turns[half:]
        if [other.step(action) for action, _ in rest] != [step for _, step in rest]:
            yield f"task {played.task.task_id!r}: an unpickled episode does not go on as its original"


def _step_needs_reset(check: Check) -> Iterator[str]:
    if not _refuses_to_step(check.family.new()):
        yield "step before reset has to raise RuntimeError"


def _step_ends_with_the_episode(check: Check) -> Iterator[str]:
    for played in check.played:
        world = check.family.new()
        _replay(world, played.task, played.actions)
        if played.ended and not _refuses_to_step(world):
            yield f"task {played.task.task_id!r}: step after the end has to raise RuntimeError"


def _truncates_at_the_limit(check: Check) -> Iterator[str]:
    limit = check.family.max_turns
    for played in check.random:
        world = check.family.new()
        world.reset(played.task, _SEED)
        for turn in range(1, limit + 1):
            step = world.step(NONSENSE)
            if step.terminated:
                break
            if step.truncated != (turn == limit):
                yield f"turn {turn} gave truncated={step.truncated}, but max_turns={limit}"
                break


# Rules about actions.


def _admissible_actions_are_accepted(check: Check) -> Iterator[str]:
    for played in check.played:
        world = check.family.new()
        _, info = world.reset(played.task, _SEED)
        for action, _ in played.turns[:_STATES_PROBED]:
            listed = list(info.admissible or ())
            for probed in listed[:: max(1, len(listed) // _ACTIONS_PROBED)]:
                if not world.copy().step(probed).info.accepted:
                    yield f"task {played.task.task_id!r}: the admissible action {probed!r} was not accepted"
            step = world.step(action)
            if step.terminated or step.truncated:
                break
            info = step.info


def _nonsense_is_answered(check: Check) -> Iterator[str]:
    for task in check.tasks:
        world = check.family.new()
        world.reset(task, _SEED)
        step = world.step(NONSENSE)
        if step.info.accepted:
            yield f"task {task.task_id!r}: the action {NONSENSE!r} was accepted"
        if not step.observation:
            yield f"task {task.task_id!r}: the action {NONSENSE!r} was answered with no observation"


# Rules about policies and texts.


def _random_policy_runs(check: Check) -> Iterator[str]:
    check.random = _play_all(check, check.family.random_policy(_SEED))
    for played in check.random:
        if played.whole and not played.ended:
            yield f"task {played.task.task_id!r} has not ended after max_turns={check.family.max_turns} turns"


def _oracle_policy_runs(check: Check) -> Iterator[str]:
    check.oracle = _play_all(check, check.family.oracle_policy(_SEED))
    rate = mean([played.solved for played in check.oracle if played.whole])
    if any(played.whole for played in check.oracle) and rate < ORACLE_SUCCESS_AT_LEAST:
        yield f"the oracle solved {rate:.0%} of its tasks; {ORACLE_SUCCESS_AT_LEAST:.0%} are needed"


def _success_pays(check: Check) -> Iterator[str]:
    for played in check.oracle:
        returned = sum(step.reward for _, step in played.turns)
        if played.solved and returned <= 0.0:
            yield f"task {played.task.task_id!r} was solved for a return of {returned}; it has to be above 0"


def _texts_are_given(check: Check) -> Iterator[str]:
    family = check.family
    for played in check.random:
        observation = played.first[0]
        if not family.task_text(observation).strip():
            yield f"task {played.task.task_id!r}: task_text gave nothing for its first observation"
        if family.canonical_state(observation) != family.canonical_state(observation):
            yield f"task {played.task.task_id!r}: canonical_state is not the same twice"
        for action, step in played.turns:
            kind = family.transition_kind(action, step.observation)
            if not (isinstance(kind, str) and kind):
                yield f"transition_kind({action!r}, ...) gave {kind!r}, not a name"


RULES: dict[str, Callable[[Check], Iterator[str]]] = {
    "tasks_are_listed": _tasks_are_listed,
    "tasks_are_unique": _tasks_are_unique,
    "tasks_are_stable": _tasks_are_stable,
    "unknown_split_is_refused": _unknown_split_is_refused,
    "random_policy_runs": _random_policy_runs,
    "oracle_policy_runs": _oracle_policy_runs,
    "answers_are_typed": _answers_are_typed,
    "rewards_are_in_range": _rewards_are_in_range,
    "progress_is_in_range": _progress_is_in_range,
    "progress_one_means_success": _progress_one_means_success,
    "reset_begins_unsolved": _reset_begins_unsolved,
    "reset_is_deterministic": _reset_is_deterministic,
    "same_actions_same_episode": _same_actions_same_episode,
    "copies_are_independent": _copies_are_independent,
    "pickles_round_trip": _pickles_round_trip,
    "step_needs_reset": _step_needs_reset,
    "step_ends_with_the_episode": _step_ends_with_the_episode,
    "truncates_at_the_limit": _truncates_at_the_limit,
    "admissible_actions_are_accepted": _admissible_actions_are_accepted,
    "nonsense_is_answered": _nonsense_is_answered,
    "success_pays": _success_pays,
    "texts_are_given": _texts_are_given,
}
"""Every rule by name, in the order in which they are checked."""
