"""Warnings of a training loop that goes wrong, read off its learning curve, each with what to change.

A condition is a function of the curve's rows alone. Whether it is new follows from the rows before the last one, so
nothing has to be carried: a resumed run warns as an undisturbed one would. Warnings change no result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import Field

from worldwise.config import FrozenConfig

if TYPE_CHECKING:
    from worldwise.rollouts.config import RolloutConfig
    from worldwise.stages.midtrain import RwmlConfig
    from worldwise.stages.train_policy import PolicyConfig
    from worldwise.training.config import LearnerConfig

_logger = logging.getLogger(__name__)

SETTLED = 0.9
"""From this success (RWML: share of rewarded predictions) on, little entropy is what learning was to bring."""

Rows = Sequence[Mapping[str, float]]
"""Rows of a learning curve, oldest first; a row may lack columns."""

Condition = Callable[[Rows], str]
"""What is wrong at the last row and what to change, empty where nothing is."""


class WatchConfig(FrozenConfig):
    """When a training loop warns. Shares and entropies are means over the last `window` rows; nothing is said before.

    A row is an iteration of policy RL or an update of RWML. A limit at the end of its range says nothing at all.

    Attributes:
        window: rows whose mean counts, at least 1.
        truncation_max: share of episodes cut at a turn or token limit, and of responses (RWML: predictions) cut at
            the token cap, above which is warned, [0, 1].
        zero_variance_max: share of groups with nothing to compare above which is warned, [0, 1]. RWML warns by
            `mixed_low` where that is stricter.
        idle_updates: rows in a row without any gradient after which is warned, at least 1.
        entropy_share: share of the entropy of the first `window` rows below which it counts as collapsed, [0, 1);
            not where success has reached 90 %: a policy that is right may be sure of itself.
        entropy_min: entropy in nats per token below which it counts as collapsed whatever it was at first, >= 0:
            with 0.001 the episodes of a group differ in hardly a word.
        kl_max: divergence of an update's weights from those before it (`learner_kl_update`), nats per token, above
            which is warned at once, > 0. A healthy update stays below a few hundredths.
        kl_reference_max: the same for the divergence from the reference (`learner_kl_reference`), which only a KL
            term measures.
        state_group_min: mean size of GiGPO's state groups below which is warned, at least 1, without the states that
            episodes began in: the episodes of a task always share those.
    """

    window: int = Field(5, ge=1)
    truncation_max: float = Field(0.5, ge=0.0, le=1.0)
    zero_variance_max: float = Field(0.8, ge=0.0, le=1.0)
    idle_updates: int = Field(5, ge=1)
    entropy_share: float = Field(0.1, ge=0.0, lt=1.0)
    entropy_min: float = Field(1e-3, ge=0.0)
    kl_max: float = Field(0.1, gt=0.0)
    kl_reference_max: float = Field(1.0, gt=0.0)
    state_group_min: float = Field(1.05, ge=1.0)


@dataclass(frozen=True, slots=True)
class Watch:
    """Says once what is wrong with a loop, and again if it comes back.

    Attributes:
        stage: name of the loop, for the messages.
        unit: what a row is, `iteration` or `update`.
        conditions: what is looked at.
    """

    stage: str
    unit: str
    conditions: Sequence[Condition]

    def look(self, before: Rows, step: int, row: Mapping[str, float]) -> dict[str, float]:
        """Warns of what holds with the newest row and did not hold before it.

        Args:
            before: the curve so far.
            step: number of the next row.
            row: its numbers.

        Returns:
            For the row: `warnings`, how many conditions hold.
        """
        rows, holding = [*before, {"step": float(step), **row}], 0
        for condition in self.conditions:
            told = condition(rows)
            holding += bool(told)
            if told and not condition(before):
                _logger.warning("%s, %s %d: %s", self.stage, self.unit, step, told)
        return {"warnings": float(holding)}


def policy_watch(
    stage: str, config: PolicyConfig, rollout: RolloutConfig, world_turns: int, compares: bool = True
) -> Watch:
    """What is watched in policy RL; columns as in `train_policy`.

    Args:
        stage: name of the policy.
        config: its settings.
        rollout: how episodes are played, where `config` does not say.
        world_turns: the world's own turn limit.
        compares: the estimator compares the episodes of a group, so that groups of equal returns teach nothing.
    """
    watch, learner = config.watch, config.learner
    capped = f"raise rollout.max_tokens (now {rollout.max_tokens}), or tune the form of the answers (format_tuning)"
    conditions = (
        _fallen(config),
        _cut_episodes(config, rollout, world_turns),
        _cut_answers(watch, "truncated_responses", "policy", "responses", capped),
        *([_nothing_to_compare(config)] if compares else []),
        _idle(watch, "policy", _variety("policy", config)),
        _collapsed(watch, "policy", learner, "success"),
        *_diverged(watch, "policy", learner),
        _lonely_states(config),
    )
    return Watch(stage, "iteration", conditions)


def prediction_watch(stage: str, config: RwmlConfig, tau_d: float) -> Watch:
    """What is watched in RWML; columns as in `midtrain_world_model`.

    Args:
        stage: name of the loop.
        config: its settings.
        tau_d: the threshold in force.
    """
    watch, learner = config.watch, config.learner
    variety = f"{_variety('rwml', config)}, or choose another rwml.tau_d (now {tau_d:g})"
    capped = f"raise rwml.max_tokens (now {config.max_tokens}), or lower rollout.max_episode_tokens for shorter prompts"
    conditions = (
        _cut_answers(watch, "truncated_predictions", "rwml", "predictions", capped),
        _badly_mixed(config, tau_d),
        _idle(watch, "rwml", variety),
        _collapsed(watch, "rwml", learner, "reward"),
        *_diverged(watch, "rwml", learner),
    )
    return Watch(stage, "update", conditions)


def _fallen(config: PolicyConfig) -> Condition:
    """The running success fell to under half of its best."""
    learner = config.learner
    kept = (
        "The best weights are kept and come back at the end"
        if config.keep_best
        else "The best weights are not kept (policy.keep_best)"
    )

    def told(rows: Rows) -> str:
        # Means of fewer rows are too rough to be the best.
        whole = [(row.get("running_success", 0.0), int(row["step"])) for row in rows[config.keep_window - 1 :]]
        if not whole:
            return ""
        now, (best, step) = whole[-1][0], max(whole, key=lambda own: own[0])
        if now >= best / 2:
            return ""
        return (
            f"running success fell to {100 * now:.1f} % from {100 * best:.1f} % in iteration {step}: the updates are "
            f"too large. {kept}; {_lower_rate('policy', learner)} or policy.learner.updates (now {learner.updates}), "
            "or let the rate fall with policy.learner.schedule=linear"
        )

    return told


def _cut_episodes(config: PolicyConfig, rollout: RolloutConfig, world_turns: int) -> Condition:
    limit, window = config.watch.truncation_max, config.watch.window

    def tell(share: float, rows: Rows) -> str:
        tokens = _mean(rows, "token_limit_episodes", window) or 0.0
        cap = rollout.max_episode_tokens or "what the model can hold"
        change = (
            f"rollout.max_episode_tokens (now {cap})" if tokens > share / 2 else _turns(config, rollout, world_turns)
        )
        return (
            f"{_percent(share)} of the episodes were cut off in the last {window} iterations, {_percent(tokens)} at "
            f"the token limit, the others at the turn limit (policy.watch.truncation_max={limit:g}): what they might "
            f"still have reached is not seen; raise {change}, or start from weights that solve more tasks"
        )

    return _above("truncated_episodes", limit, window, tell)


def _turns(config: PolicyConfig, rollout: RolloutConfig, world_turns: int) -> str:
    """The turn limit that holds: the lower one of the training's and the world's."""
    name, limit = ("policy", config.max_turns) if config.max_turns is not None else ("rollout", rollout.max_turns)
    if limit is not None and limit < world_turns:
        return f"{name}.max_turns (now {limit})"
    return f"the world's own max_turns (now {world_turns})"


def _cut_answers(watch: WatchConfig, column: str, block: str, what: str, change: str) -> Condition:
    """Responses or predictions that were cut at the token cap."""

    def tell(share: float, rows: Rows) -> str:
        return (
            f"{_percent(share)} of the {what} did not come to their end in the last {watch.window} rows of the curve "
            f"({block}.watch.truncation_max={watch.truncation_max:g}): what they were to say is cut off; {change}"
        )

    return _above(column, watch.truncation_max, watch.window, tell)


def _nothing_to_compare(config: PolicyConfig) -> Condition:
    limit, window = config.watch.zero_variance_max, config.watch.window

    def tell(share: float, rows: Rows) -> str:
        if (_mean(rows, "solved_groups", window) or 0.0) > share / 2:
            cause = "most of them solved by every episode: take harder tasks or stop here, or"
        else:
            cause = "most of them solved by none: take easier tasks or weights that solve some, or"
        return (
            f"{_percent(share)} of the groups had equal returns in the last {window} iterations and taught nothing "
            f"(policy.watch.zero_variance_max={limit:g}), {cause} {_variety('policy', config)} "
            f"or policy.sampling_rounds (now {config.sampling_rounds})"
        )

    return _above("zero_variance", limit, window, tell)


def _badly_mixed(config: RwmlConfig, tau_d: float) -> Condition:
    """Too few or too many prompts whose predictions are partly rewarded; too few is RWML's zero variance."""
    window, most = config.watch.window, config.mixed_high
    least = max(config.mixed_low, 1.0 - config.watch.zero_variance_max)

    def told(rows: Rows) -> str:
        share = _mean(rows, "mixed_groups", window)
        if share is None or least <= share <= most:
            return ""
        if share > most:
            change = "rewarded by luck: lower"
        elif (_mean(rows, "reward", window) or 0.0) > 0.5:
            change = "always rewarded: lower"
        else:
            change = "never rewarded: raise"
        return (
            f"{_percent(share)} of the groups were mixed in the last {window} updates, outside of the wanted "
            f"{_percent(least)} to {_percent(most)} (rwml.mixed_low, rwml.mixed_high): most predictions are {change} "
            f"rwml.tau_d (now {tau_d:g}), or let rwml.tau_d=mixed choose it"
        )

    return told


def _idle(watch: WatchConfig, block: str, variety: str) -> Condition:
    """No gradient at all, several rows in a row."""

    def told(rows: Rows) -> str:
        tail = rows[-watch.idle_updates :]
        if len(tail) < watch.idle_updates or not all(_without_gradient(row) for row in tail):
            return ""
        if any(row.get("mixed_groups", 0.0) > 0.0 or row.get("zero_variance", 1.0) < 1.0 for row in tail):
            change = f"returns differed: look at learner_advantage_size and at what {block}.learner.adapter trains"
        else:
            change = f"the returns of a group did not differ: {variety}"
        return (
            f"the gradient was 0 {len(tail)} times in a row ({block}.watch.idle_updates={watch.idle_updates}) and the "
            f"weights stand still; {change}"
        )

    return told


def _without_gradient(row: Mapping[str, float]) -> bool:
    # An update that had nothing to train on takes no optimizer step and has no norm.
    return "learner_optimizer_steps" in row and row.get("learner_grad_norm", 0.0) == 0.0


def _collapsed(watch: WatchConfig, block: str, learner: LearnerConfig, score: str) -> Condition:
    """Hardly any entropy is left though there is still something to learn.

    Args:
        score: the column that says how much has been learned.
    """

    def told(rows: Rows) -> str:
        entropy, learned = _mean(rows, "entropy", watch.window), _mean(rows, score, watch.window)
        if entropy is None or learned is None or learned >= SETTLED:
            return ""
        first = list(islice((row["entropy"] for row in rows if "entropy" in row), watch.window))
        start = sum(first) / len(first)
        if entropy >= max(watch.entropy_share * start, watch.entropy_min):
            return ""
        return (
            f"the entropy is {entropy:.2g} nats per token after {start:.2g} in the first {watch.window} rows of the "
            f"curve, at a {score} of {learned:.2f} ({block}.watch.entropy_share={watch.entropy_share:g}, "
            f"{block}.watch.entropy_min={watch.entropy_min:g}): hardly anything else is tried any more; raise "
            f"{block}.learner.entropy_coefficient (now {learner.entropy_coefficient:g}) or {block}.learner.clip_high "
            f"(now {learner.clip_high:g}), or {_lower_rate(block, learner)}"
        )

    return told


def _diverged(watch: WatchConfig, block: str, learner: LearnerConfig) -> list[Condition]:
    """Divergences above their limits in the last row: after an explosion there is no time for means."""
    clip = "none" if learner.gradient_clip is None else f"{learner.gradient_clip:g}"

    def moved(nats: float, rows: Rows) -> str:
        return (
            f"the update moved the weights {nats:.3g} nats per token away from those that sampled "
            f"({block}.watch.kl_max={watch.kl_max:g}); {_lower_rate(block, learner)}, {block}.learner.updates "
            f"(now {learner.updates}) or {block}.learner.gradient_clip (now {clip})"
        )

    def left(nats: float, rows: Rows) -> str:
        return (
            f"the weights are {nats:.3g} nats per token away from those at the start "
            f"({block}.watch.kl_reference_max={watch.kl_reference_max:g}); raise {block}.learner.kl_coefficient "
            f"(now {learner.kl_coefficient:g}), or {_lower_rate(block, learner)}"
        )

    return [
        _above("learner_kl_update", watch.kl_max, 1, moved),
        _above("learner_kl_reference", watch.kl_reference_max, 1, left),
    ]


def _lonely_states(config: PolicyConfig) -> Condition:
    least, window = config.watch.state_group_min, config.watch.window

    def told(rows: Rows) -> str:
        size = _mean(rows, "state_group_size_later", window)
        if size is None or size >= least:
            return ""
        return (
            f"a state behind the first turn occurs {size:.3f} times in the episodes of its task (mean of the last "
            f"{window} iterations, policy.watch.state_group_min={least:g}): GiGPO has next to nothing to compare "
            f"within states and is GRPO here; raise policy.group_size (now {config.group_size}), let the world's "
            "canonical_state leave out what differs between equal states, or take policy.algorithm=grpo"
        )

    return told


def _above(column: str, limit: float, window: int, tell: Callable[[float, Rows], str]) -> Condition:
    """A column whose mean over the last rows is above its limit; `tell` gets the mean and the rows."""

    def told(rows: Rows) -> str:
        value = _mean(rows, column, window)
        return "" if value is None or value <= limit else tell(value, rows)

    return told


def _variety(block: str, config: PolicyConfig | RwmlConfig) -> str:
    return f"raise {block}.temperature (now {config.temperature:g}) or {block}.group_size (now {config.group_size})"


def _lower_rate(block: str, learner: LearnerConfig) -> str:
    return f"lower {block}.learner.learning_rate (now {learner.learning_rate:g})"


def _mean(rows: Rows, column: str, count: int) -> float | None:
    """Mean of a column over the last `count` rows; None if there are not so many that have it."""
    values = [row[column] for row in rows[-count:] if column in row]
    return sum(values) / count if len(values) == count else None


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
