"""Transitions out of episodes, and which of them leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from worldwise.episodes.record import Episode, Termination, Turn
from worldwise.episodes.transitions import CleaningRules, extract

from ..worldless import WorldlessFamily

EVERYTHING = CleaningRules(drop_invalid_format=False, drop_duplicates=False, max_rejected_share=1.0)
Make = Callable[..., Episode]
MakeTurn = Callable[..., Turn]


class Rooms(WorldlessFamily):
    """Names kinds by a transition's first word."""

    name = "rooms"

    def transition_kind(self, action: str, observation: str) -> str:
        return "nothing" if observation == "Nothing happens." else action.partition(" ")[0]


def balance(counts: dict[str, int]) -> bool:
    """Every turn is accounted for once."""
    dropped = sum(count for name, count in counts.items() if name.startswith("dropped_"))
    kinds = sum(count for name, count in counts.items() if name.startswith("kind_"))
    return counts["turns"] == dropped + counts["kept"] and kinds == counts["kept"]


def test_prompts_hold_the_conversation_so_far(episode_of: Make) -> None:
    kept, counts = extract([episode_of()], Rooms(), EVERYTHING, seed=0)
    assert [item.prompt_ids.tolist() for item in kept] == [
        [10, 20, 11, 30, 1],
        [10, 20, 11, 30, 1, 10, 21, 11, 31, 1],
        [10, 20, 11, 30, 1, 10, 21, 11, 31, 1, 10, 22, 11, 32, 1],
    ]
    second = kept[1]
    assert (second.transition_id, second.turn, second.kind) == ("collect/0/task-a/0#1", 1, "go")
    assert (second.observation, second.action, second.next_observation) == ("room 1", "go on", "room 2")
    assert [item.terminal for item in kept] == [False, False, True]
    assert counts["kept"] == counts["turns"] == counts["kind_go"] == 3
    assert balance(counts)


def test_a_restart_begins_the_prompt_anew(episode_of: Make, turn_of: MakeTurn) -> None:
    first, second, third = episode_of().turns
    episode = replace(episode_of(), turns=(first, replace(second, restart=True), third))
    kept, _ = extract([episode], Rooms(), EVERYTHING, seed=0)
    assert [item.prompt_ids.tolist() for item in kept] == [
        [10, 20, 11, 30, 1],
        [10, 21, 11, 31, 1],
        [10, 21, 11, 31, 1, 10, 22, 11, 32, 1],
    ]


def test_named_rules(episode_of: Make, turn_of: MakeTurn) -> None:
    turns = [turn_of(0), turn_of(1, format_valid=False), turn_of(2, next_observation=" "), turn_of(3)]
    turns[3] = replace(turns[3], observation=" ", terminated=True)
    odd = replace(episode_of(), turns=tuple(turns))
    twin = episode_of("collect/0/task-a/1")
    broken = replace(
        episode_of("collect/0/task-a/2"), termination=Termination.TIMEOUT, success=False, reward_valid=False
    )
    kept, counts = extract([odd, twin, broken], Rooms(), CleaningRules(keep_terminal=False), seed=0)
    # The first turns of the first two episodes are equal in history, action and outcome.
    assert [item.transition_id for item in kept] == ["collect/0/task-a/0#0", "collect/0/task-a/1#1"]
    assert {name: count for name, count in counts.items() if count} == {
        "turns": 10,
        "dropped_infrastructure": 3,
        "dropped_invalid_format": 1,
        "dropped_empty": 1,
        "dropped_terminal": 2,
        "dropped_duplicate": 1,
        "kept": 2,
        "kind_go": 2,
    }
    assert balance(counts)


def test_equal_actions_with_another_outcome_are_no_duplicates(episode_of: Make, turn_of: MakeTurn) -> None:
    ending = turn_of(0, next_observation="elsewhere", terminated=True)
    other = replace(episode_of("collect/0/task-a/1"), turns=(ending,))
    kept, counts = extract([episode_of(), other], Rooms(), CleaningRules(), seed=0)
    assert counts["dropped_duplicate"] == 0
    assert len(kept) == 4


def rejections(episode_of: Make, turn_of: MakeTurn, accepted: int, rejected: int) -> list[Episode]:
    """Episodes of one turn, some of them refused by the world."""
    episodes = []
    for number in range(accepted + rejected):
        refused = number >= accepted
        text = "Nothing happens." if refused else f"room {number}"
        turn = turn_of(0, next_observation=text, accepted=not refused, terminated=True)
        turn = replace(turn, context_ids=turn.context_ids + number)
        episodes.append(replace(episode_of(f"collect/0/task-{number}/0"), turns=(turn,)))
    return episodes


@pytest.mark.parametrize(
    ("accepted", "rejected", "share", "stay"),
    [(9, 5, 0.1, 1), (18, 5, 0.1, 2), (19, 5, 0.1, 2), (8, 1, 0.1, 0), (2, 7, 0.5, 2), (3, 4, 1.0, 4), (3, 4, 0.0, 0)],
)
def test_surplus_of_nothing_happens(
    episode_of: Make, turn_of: MakeTurn, accepted: int, rejected: int, share: float, stay: int
) -> None:
    episodes = rejections(episode_of, turn_of, accepted, rejected)
    kept, counts = extract(episodes, Rooms(), CleaningRules(max_rejected_share=share), seed=0)
    left = [item for item in kept if not item.accepted]
    assert len(left) == stay
    assert len(kept) == accepted + stay
    assert counts.get("kind_nothing", 0) == stay
    assert counts["dropped_rejected"] == rejected - stay
    assert len(left) <= share * len(kept) + 1e-9
    assert balance(counts)


def test_which_surplus_leaves_is_drawn_by_seed(episode_of: Make, turn_of: MakeTurn) -> None:
    episodes = rejections(episode_of, turn_of, 9, 30)
    chosen = []
    for seed in (0, 0, 1, 2, 3):
        kept, _ = extract(episodes, Rooms(), CleaningRules(), seed=seed)
        chosen.append([item.task_id for item in kept if not item.accepted])
    assert chosen[0] == chosen[1]
    assert len({tuple(ids) for ids in chosen}) > 1


def test_few_of_each_task(episode_of: Make) -> None:
    episodes = [episode_of(f"collect/0/task-{name}/0", turns=5) for name in "ab"]
    rules = EVERYTHING.model_copy(update={"max_per_task": 2})
    kept, counts = extract(episodes, Rooms(), rules, seed=0)
    assert [item.task_id for item in kept] == ["task-a"] * 2 + ["task-b"] * 2
    assert counts["dropped_per_task"] == 6
    assert [item.turn for item in kept] == sorted(item.turn for item in kept[:2]) + sorted(
        item.turn for item in kept[2:]
    )
