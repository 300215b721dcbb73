"""Play without a model: yardsticks for agents, and conversations for a base model to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from worldwise.config import derive_seed
from worldwise.episodes.record import Termination
from worldwise.rollouts.config import RolloutError
from worldwise.worlds.contract import Info, ScriptedPolicy, Task, WorldFamily

PolicyName = Literal["random", "oracle"]


@dataclass(frozen=True, slots=True)
class ScriptedEpisode:
    """An episode that no model played.

    Attributes:
        task: what was played.
        observations: the world's texts, one before each action and one after the last.
        infos: what the world said beside each observation.
        actions: the commands.
        rewards: the world's reward for each action.
        termination: why it ended.
    """

    task: Task
    observations: tuple[str, ...]
    infos: tuple[Info, ...]
    actions: tuple[str, ...]
    rewards: tuple[float, ...]
    termination: Termination

    @property
    def success(self) -> bool:
        """The task was solved."""
        return self.termination is Termination.SOLVED

    @property
    def progress(self) -> float:
        """The goal's share reached in the end, 0..1."""
        return self.infos[-1].progress

    def messages(self) -> list[dict[str, str]]:
        """The episode as a chat: what the world said is the user's, the commands are the assistant's.

        For token ids with roles, in an agent's own prompts, see `Agent.transcript`.
        """
        chat: list[dict[str, str]] = []
        for observation, action in zip(self.observations, self.actions, strict=False):
            chat.append({"role": "user", "content": observation})
            chat.append({"role": "assistant", "content": action})
        chat.append({"role": "user", "content": self.observations[-1]})
        return chat


def play_scripted(
    family: WorldFamily,
    policy: ScriptedPolicy | PolicyName,
    task: Task,
    seed: int,
    max_turns: int | None = None,
) -> ScriptedEpisode:
    """Plays one episode.

    Args:
        family: the world.
        policy: `random`, `oracle` (the family's own, seeded by `seed` and the task), or any scripted policy.
        task: what to play.
        seed: seed of the world and of a policy asked for by name.
        max_turns: most turns; None = the world's own limit, which always holds as well.

    Raises:
        RolloutError: an unknown policy name, or max_turns below 1.
    """
    if max_turns is not None and max_turns < 1:
        raise RolloutError(f"max_turns={max_turns} must be at least 1, or None for the world's own limit")
    acting = _policy(family, policy, derive_seed(seed, "policy", task.task_id))
    world = family.new()
    observation, info = world.reset(task, derive_seed(seed, "world", task.task_id))
    observations, infos = [observation], [info]
    actions: list[str] = []
    rewards: list[float] = []
    while True:
        action = acting.act(world, observation, info)
        step = world.step(action)
        observation, info = step.observation, step.info
        observations.append(observation)
        infos.append(info)
        actions.append(action)
        rewards.append(step.reward)
        if step.terminated:
            termination = Termination.SOLVED if info.success else Termination.FAILED
            break
        if step.truncated or len(actions) == max_turns:
            termination = Termination.TURN_LIMIT
            break
    return ScriptedEpisode(task, tuple(observations), tuple(infos), tuple(actions), tuple(rewards), termination)


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What a policy reaches on some tasks.

    Attributes:
        episodes: episodes played.
        successes: of them solved.
        by_type: task type -> (episodes, solved).
        mean_turns: turns an episode.
        mean_turns_solved: turns a solved episode, NaN-free: 0 if none was solved.
        mean_return: undiscounted rewards an episode.
        mean_progress: the goal's share reached, 0..1.
        rejected_share: share of turns whose action the world did not understand.
    """

    episodes: int
    successes: int
    by_type: dict[str, tuple[int, int]]
    mean_turns: float
    mean_turns_solved: float
    mean_return: float
    mean_progress: float
    rejected_share: float

    @property
    def success_rate(self) -> float:
        """Solved episodes by all episodes."""
        return self.successes / self.episodes


def yardstick(
    family: WorldFamily, policy: PolicyName, tasks: Sequence[Task], seed: int, max_turns: int | None = None
) -> Yardstick:
    """One scripted episode on each task, summed up.

    Raises:
        RolloutError: no tasks, or as `play_scripted`.
    """
    if not tasks:
        raise RolloutError("a yardstick needs at least one task: the split is empty, or count=0")
    return summarise(play_scripted(family, policy, task, seed, max_turns) for task in tasks)


def summarise(episodes: Iterable[ScriptedEpisode]) -> Yardstick:
    """Sums up scripted episodes, at least one."""
    by_type: dict[str, tuple[int, int]] = {}
    count = successes = turns = turns_solved = rejected = 0
    returns = progress = 0.0
    for episode in episodes:
        length = len(episode.actions)
        played, solved = by_type.get(episode.task.task_type, (0, 0))
        by_type[episode.task.task_type] = (played + 1, solved + episode.success)
        count, turns, successes = count + 1, turns + length, successes + episode.success
        turns_solved += length * episode.success
        rejected += sum(not info.accepted for info in episode.infos[1:])
        returns += sum(episode.rewards)
        progress += episode.progress
    return Yardstick(
        episodes=count,
        successes=successes,
        by_type=by_type,
        mean_turns=turns / count,
        mean_turns_solved=turns_solved / successes if successes else 0.0,
        mean_return=returns / count,
        mean_progress=progress / count,
        rejected_share=rejected / turns,
    )


def _policy(family: WorldFamily, policy: ScriptedPolicy | PolicyName, seed: int) -> ScriptedPolicy:
    if not isinstance(policy, str):
        return policy
    if policy == "random":
        return family.random_policy(seed)
    if policy == "oracle":
        return family.oracle_policy(seed)
    raise RolloutError(f"policy={policy!r} must be random or oracle, or a scripted policy")
