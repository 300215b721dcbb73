"""Random and oracle play on the evaluation tasks: what a policy without a model reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from worldwise.episodes.record import Episode, Turn
from worldwise.rollouts.scripted import PolicyName, ScriptedEpisode, play_scripted
from worldwise.stages.acting_scores import ActingReport, report_acting
from worldwise.stages.actor import StageContext
from worldwise.stages.evaluate import EvaluateConfig
from worldwise.worlds.contract import Task

POLICIES: tuple[PolicyName, ...] = ("random", "oracle")


def score_yardsticks(
    tasks: Mapping[str, Sequence[Task]], config: EvaluateConfig, context: StageContext
) -> dict[str, ActingReport]:
    """Scores of random and oracle play, one episode per task; policy name -> report with temperature "0"."""
    chosen = [task for split in config.splits for task in islice(tasks.get(split, ()), config.games)]
    reports: dict[str, ActingReport] = {}
    for number, policy in enumerate(POLICIES):
        episodes = []
        for done, task in enumerate(chosen, start=1):
            script = play_scripted(context.family, policy, task, context.seed, config.max_turns)
            episodes.append(as_episode(script, policy, context))
            context.reporter.progress(number * len(chosen) + done, len(POLICIES) * len(chosen), f"{policy} play")
        reports[policy] = report_acting(policy, episodes).model_copy(update={"restricted": None})
    return reports


def as_episode(script: ScriptedEpisode, policy: str, context: StageContext) -> Episode:
    """A scripted episode as a record without tokens, so that the same scores apply to it."""
    nothing, none = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
    last = len(script.actions) - 1
    turns = tuple(
        Turn(
            index=index,
            observation=script.observations[index],
            context_ids=nothing,
            restart=index == 0,
            observation_span=(0, 0),
            response_ids=nothing,
            logprobs=none,
            entropies=none,
            response_text=action,
            action=action,
            action_span=(0, 0),
            format_valid=True,
            finished=True,
            accepted=script.infos[index + 1].accepted,
            reward=script.rewards[index],
            progress=script.infos[index + 1].progress,
            next_observation=script.observations[index + 1],
            terminated=index == last and script.success,
            truncated=index == last and not script.success,
        )
        for index, action in enumerate(script.actions)
    )
    name = f"{policy}/{script.task.task_id}"
    return Episode(
        episode_id=f"{name}/0",
        group_id=name,
        world=context.family.name,
        task_id=script.task.task_id,
        task_type=script.task.task_type,
        split=script.task.split,
        sample=0,
        iteration=0,
        seed=context.seed,
        model_version=policy,
        turns=turns,
        termination=script.termination,
        success=script.success,
        progress=script.progress,
        reward_valid=True,
        temperature=0.0,
        restricted=True,
        context="conversation",
    )
