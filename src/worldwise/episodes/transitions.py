"""Transitions: what a world model learns from, cut out of episodes and cleaned by named rules."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from worldwise.config import FrozenConfig, derive_seed
from worldwise.episodes.record import Episode
from worldwise.worlds.contract import WorldFamily


@dataclass(frozen=True, slots=True)
class Transition:
    """(history, action, next observation).

    Attributes:
        transition_id: `<episode_id>#<turn>`.
        episode_id, task_id, task_type, split, turn: where it comes from.
        kind: the world's own name for this kind of transition.
        prompt_ids: int32 [P], the tokens the model had read and said up to and including the response with
            the action (since the last restart of the context).
        action: the command as the world received it.
        observation, next_observation: the world's raw texts before and after it.
        accepted: the world understood the action.
        terminal: the episode ended with it.
        pass_rate: share of tries that predicted it, once it was scored; None before.
    """

    transition_id: str
    episode_id: str
    task_id: str
    task_type: str
    split: str
    turn: int
    kind: str
    prompt_ids: NDArray[np.int32]
    action: str
    observation: str
    next_observation: str
    accepted: bool
    terminal: bool
    pass_rate: float | None = None


class CleaningRules(FrozenConfig):
    """What leaves before a world model learns (RWML, arXiv 2602.05842, names "minor postprocessing" only).

    Attributes:
        drop_invalid_format: drop turns whose response had not the demanded form.
        drop_duplicates: keep one of several transitions with equal history, action and next observation.
        keep_terminal: keep the transition that ended its episode.
        max_rejected_share: largest share of transitions whose action the world did not understand
            ("Nothing happens."), 0..1; which ones stay is drawn by seed.
        max_per_task: most transitions of one task, drawn by seed; None = all.
    """

    drop_invalid_format: bool = True
    drop_duplicates: bool = True
    keep_terminal: bool = True
    max_rejected_share: float = Field(0.10, ge=0.0, le=1.0)
    max_per_task: int | None = Field(None, ge=1)


def extract(
    episodes: Iterable[Episode], family: WorldFamily, rules: CleaningRules, seed: int
) -> tuple[list[Transition], dict[str, int]]:
    """The transitions of episodes, cleaned, in the episodes' order.

    Args:
        episodes: read once; not held.
        family: names the kinds.
        rules: what leaves.
        seed: decides which surplus transitions leave.

    Returns:
        The transitions, and counts: `turns`, one `dropped_<rule>` for every rule (`infrastructure`: episodes
        that a broken world or engine ended; `empty`: nothing was answered), `kept`, and `kind_<kind>` of the
        kept ones. `turns` is the sum of the dropped and the kept.
    """
    counts: Counter[str] = Counter({f"dropped_{name}": 0 for name in _RULES})
    kept: list[Transition] = []
    seen: set[bytes] = set()
    for episode in episodes:
        counts["turns"] += len(episode.turns)
        if not episode.reward_valid:
            counts["dropped_infrastructure"] += len(episode.turns)
            continue
        for transition, format_valid in _transitions(episode, family):
            reason = _reason(transition, format_valid, rules)
            if not reason and rules.drop_duplicates:
                key = _fingerprint(transition)
                reason = "duplicate" if key in seen else ""
                seen.add(key)
            if reason:
                counts[f"dropped_{reason}"] += 1
            else:
                kept.append(transition)
    for name, choose in (("rejected", _few_rejected), ("per_task", _few_per_task)):
        chosen = choose(kept, rules, seed)
        counts[f"dropped_{name}"] += len(kept) - len(chosen)
        kept = chosen
    counts["kept"] = len(kept)
    counts.update(f"kind_{transition.kind}" for transition in kept)
    return kept, dict(counts)


_RULES = ("infrastructure", "invalid_format", "terminal", "empty", "duplicate", "rejected", "per_task")


def _transitions(episode: Episode, family: WorldFamily) -> Iterable[tuple[Transition, bool]]:
    """All transitions of an episode, each with whether its response had the demanded form."""
    held: list[NDArray[np.int32]] = []
    for turn in episode.turns:
        if turn.restart:
            held = []
        held += [turn.context_ids, turn.response_ids]
        transition = Transition(
            transition_id=f"{episode.episode_id}#{turn.index}",
            episode_id=episode.episode_id,
            task_id=episode.task_id,
            task_type=episode.task_type,
            split=episode.split,
            turn=turn.index,
            kind=family.transition_kind(turn.action, turn.next_observation),
            prompt_ids=np.concatenate(held),
            action=turn.action,
            observation=turn.observation,
            next_observation=turn.next_observation,
            accepted=turn.accepted,
            terminal=turn.terminated or turn.truncated,
        )
        yield transition, turn.format_valid


def _reason(transition: Transition, format_valid: bool, rules: CleaningRules) -> str:
    """The rule by which a transition leaves, whatever the others are; "" if none."""
    if rules.drop_invalid_format and not format_valid:
        return "invalid_format"
    if transition.terminal and not rules.keep_terminal:
        return "terminal"
    return "" if transition.next_observation.strip() else "empty"


def _fingerprint(transition: Transition) -> bytes:
    """The history and action as the model saw them, and what followed."""
    digest = hashlib.blake2b(transition.prompt_ids.tobytes(), digest_size=16)
    digest.update(b"\x00" + transition.next_observation.encode())
    return digest.digest()


def _few_rejected(transitions: Sequence[Transition], rules: CleaningRules, seed: int) -> list[Transition]:
    rejected = [item for item in transitions if not item.accepted]
    accepted = len(transitions) - len(rejected)
    share = rules.max_rejected_share
    # r <= share * (accepted + r), solved for r; the small term undoes the rounding of share itself.
    room = len(rejected) if share == 1.0 else int(share / (1.0 - share) * accepted + 1e-9)
    return _without(transitions, _drawn(rejected, len(rejected) - room, seed, "rejected"))


def _few_per_task(transitions: Sequence[Transition], rules: CleaningRules, seed: int) -> list[Transition]:
    if rules.max_per_task is None:
        return list(transitions)
    by_task: dict[str, list[Transition]] = {}
    for item in transitions:
        by_task.setdefault(item.task_id, []).append(item)
    surplus: set[str] = set()
    for items in by_task.values():
        surplus |= _drawn(items, len(items) - rules.max_per_task, seed, "per_task")
    return _without(transitions, surplus)


def _drawn(transitions: Sequence[Transition], count: int, seed: int, rule: str) -> set[str]:
    """Ids of `count` transitions drawn by seed and id, so that it does not matter what else there is."""
    ids = [item.transition_id for item in transitions]
    return set(sorted(ids, key=lambda name: derive_seed(seed, rule, name))[: max(0, count)])


def _without(transitions: Sequence[Transition], ids: set[str]) -> list[Transition]:
    return [item for item in transitions if item.transition_id not in ids]
