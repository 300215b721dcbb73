"""The checker passes a small correct world, and names the rule that each broken one breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from worldwise.worlds.checker import check_world
from worldwise.worlds.contract import Info, ScriptedPolicy, Step, Task, World, WorldError, WorldFamily
from worldwise.worlds.contract_rules import NONSENSE, RULES


class Stairs(World):
    """Climb from floor 0 to the task's floor by "up" and "down"."""

    def __init__(self, max_turns: int) -> None:
        self.max_turns = max_turns
        self.top = 0
        self.floors = [0]
        self.ended = True

    def info(self, accepted: bool = True) -> Info:
        progress = max(0.0, min(1.0, self.floors[-1] / self.top))
        return Info(progress == 1.0, progress, accepted, ["down", "up"])

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        self.top = int(str(task.payload["top"]))
        self.floors = [0]
        self.ended = False
        return f"Climb to floor {self.top}.", self.info()

    def step(self, action: str) -> Step:
        if self.ended:
            raise RuntimeError("call reset first")
        accepted = action in ("up", "down")
        change = {"up": 1, "down": -1}.get(action, 0)
        self.floors.append(max(0, self.floors[-1] + change))
        info = self.info(accepted)
        truncated = not info.success and len(self.floors) > self.max_turns
        self.ended = info.success or truncated
        text = f"You are on floor {self.floors[-1]}." if accepted else "Nothing happens."
        return Step(text, float(info.success), info.success, truncated, info)

    def copy(self) -> World:
        other = type(self)(self.max_turns)
        other.top, other.floors, other.ended = self.top, list(self.floors), self.ended
        return other


class Scripted:
    """Plays a fixed list of actions over and over."""

    def __init__(self, actions: Sequence[str]) -> None:
        self.actions = actions
        self.turn = 0

    def act(self, world: World, observation: str, info: Info) -> str:
        self.turn += 1
        return self.actions[self.turn % len(self.actions)]


class StairsFamily(WorldFamily):
    """Towers of 2 to 11 floors."""

    name = "stairs"
    splits = ("train", "test")
    max_return = 1.0

    def __init__(self, world: Callable[[int], World] = Stairs, max_turns: int = 12) -> None:
        self.world = world
        self.max_turns = max_turns

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        if split not in self.splits:
            raise WorldError(f"split {split!r} is not known")
        number = 10 if count is None else count
        return [Task(f"stairs/{split}/{i}", "climb", split, {"top": 2 + i}) for i in range(number)]

    def new(self) -> World:
        return self.world(self.max_turns)

    def random_policy(self, seed: int) -> ScriptedPolicy:
        return Scripted(["up", "down", "down"])

    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        return Scripted(["up"])

    def transition_kind(self, action: str, observation: str) -> str:
        return action if action in ("up", "down") else "nothing_happens"


def broken_rules(family: WorldFamily) -> set[str]:
    return {violation.rule for violation in check_world(family, episodes=4).violations}


# Worlds that break one rule each.


class Alters(Stairs):
    """A world whose answers are changed on the way out."""

    def changed(self, step: Step) -> Step:
        raise NotImplementedError

    def step(self, action: str) -> Step:
        return self.changed(super().step(action))


class TextReward(Alters):
    def changed(self, step: Step) -> Step:
        return step._replace(reward="1")  # type: ignore[arg-type]


class PlainTuple(Alters):
    def changed(self, step: Step) -> Step:
        return tuple(step)  # type: ignore[return-value]


class RichReward(Alters):
    def changed(self, step: Step) -> Step:
        return step._replace(reward=2.0 * step.reward)


class UnpaidSuccess(Alters):
    def changed(self, step: Step) -> Step:
        return step._replace(reward=0.0)


class NegativeProgress(Alters):
    def changed(self, step: Step) -> Step:
        info = step.info
        return step._replace(info=info._replace(progress=info.progress if info.success else -1.0))


class EarlyOne(Alters):
    def changed(self, step: Step) -> Step:
        return step._replace(info=step.info._replace(progress=1.0))


class AcceptsAll(Alters):
    def changed(self, step: Step) -> Step:
        return step._replace(info=step.info._replace(accepted=True))


class ListsTooMuch(Alters):
    def changed(self, step: Step) -> Step:
        return step._replace(info=step.info._replace(admissible=["fly", "up"]))


class Mute(Alters):
    def changed(self, step: Step) -> Step:
        return step if step.info.accepted else step._replace(observation="")


class SharedCopy(Stairs):
    def copy(self) -> World:
        other = super().copy()
        assert isinstance(other, SharedCopy)
        other.floors = self.floors
        return other


class ForgetfulCopy(Stairs):
    def copy(self) -> World:
        other = type(self)(self.max_turns)
        other.top, other.ended = self.top, self.ended
        return other


class Unpicklable(Stairs):
    def __reduce__(self) -> str:
        raise TypeError("this world holds an open connection")


class ForgetfulPickle(Stairs):
    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "floors": [0]}


class StepsBeforeReset(Stairs):
    def __init__(self, max_turns: int) -> None:
        super().__init__(max_turns)
        self.top = 2
        self.ended = False


class StepsAfterEnd(Stairs):
    def step(self, action: str) -> Step:
        if self.ended and self.top:
            return Step("The end.", 0.0, True, False, self.info())
        return super().step(action)


class EarlyTruncation(Stairs):
    def __init__(self, max_turns: int) -> None:
        super().__init__(max_turns - 1)

    def copy(self) -> World:
        other = super().copy()
        assert isinstance(other, EarlyTruncation)
        other.max_turns = self.max_turns
        return other


class StartsSolved(Stairs):
    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        text, info = super().reset(task, seed)
        return text, info._replace(success=True, progress=1.0)


class CountsResets(Stairs):
    """Says in its first text how often it was reset."""

    resets = 0

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        text, info = super().reset(task, seed)
        self.resets += 1
        return f"{text} This is visit {self.resets + seed}.", info


class Moody(Stairs):
    """Its later answers depend on how many episodes the class has begun: play is not repeatable."""

    begun = 0

    def reset(self, task: Task, seed: int) -> tuple[str, Info]:
        Moody.begun += 1
        return super().reset(task, seed)

    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(observation=f"{step.observation} Mood {Moody.begun}.")


BROKEN_WORLDS: list[tuple[type[Stairs], str]] = [
    (TextReward, "answers_are_typed"),
    (RichReward, "rewards_are_in_range"),
    (UnpaidSuccess, "success_pays"),
    (NegativeProgress, "progress_is_in_range"),
    (EarlyOne, "progress_one_means_success"),
    (AcceptsAll, "nonsense_is_answered"),
    (Mute, "nonsense_is_answered"),
    (ListsTooMuch, "admissible_actions_are_accepted"),
    (SharedCopy, "copies_are_independent"),
    (ForgetfulCopy, "copies_are_independent"),
    (Unpicklable, "pickles_round_trip"),
    (ForgetfulPickle, "pickles_round_trip"),
    (StepsBeforeReset, "step_needs_reset"),
    (StepsAfterEnd, "step_ends_with_the_episode"),
    (EarlyTruncation, "truncates_at_the_limit"),
    (StartsSolved, "reset_begins_unsolved"),
    (CountsResets, "reset_is_deterministic"),
]


# Families that break one rule each.


class SameIds(StairsFamily):
    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        return [replace(task, task_id="stairs") for task in super().tasks(split, count)]


class OtherSplit(StairsFamily):
    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        return [replace(task, split="test") for task in super().tasks(split, count)]


class TooFew(StairsFamily):
    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        return super().tasks(split, count)[:2]


class Growing(StairsFamily):
    """Every call to `tasks` gives taller towers."""

    calls = 0

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        self.calls += 1
        tasks = super().tasks(split, count)
        return [replace(task, payload={"top": 2 + self.calls}) for task in tasks]


class AnySplit(StairsFamily):
    splits = ("train", "test", "no_such_split")


class WeakOracle(StairsFamily):
    def oracle_policy(self, seed: int) -> ScriptedPolicy:
        return Scripted(["down"])


class CrashingRandom(StairsFamily):
    def random_policy(self, seed: int) -> ScriptedPolicy:
        return Scripted([])


class Wordless(StairsFamily):
    def task_text(self, observation: str) -> str:
        return ""


BROKEN_FAMILIES: list[tuple[type[StairsFamily], str]] = [
    (SameIds, "tasks_are_unique"),
    (OtherSplit, "tasks_are_listed"),
    (TooFew, "tasks_are_listed"),
    (Growing, "tasks_are_stable"),
    (AnySplit, "unknown_split_is_refused"),
    (WeakOracle, "oracle_policy_runs"),
    (CrashingRandom, "random_policy_runs"),
    (Wordless, "texts_are_given"),
]


def test_a_correct_world_breaks_nothing() -> None:
    report = check_world(StairsFamily(), episodes=4)
    assert report.violations == ()
    assert report.ok
    assert report.oracle_success == 1.0
    assert report.oracle_turns == (2 + 3 + 4 + 5) / 4
    assert report.random_success == 0.0
    report.raise_if_broken()


@pytest.mark.parametrize(("world", "rule"), BROKEN_WORLDS, ids=[w.__name__ for w, _ in BROKEN_WORLDS])
def test_a_broken_world_is_caught_by_its_rule(world: type[Stairs], rule: str) -> None:
    assert broken_rules(StairsFamily(world)) == {rule}


@pytest.mark.parametrize(("family", "rule"), BROKEN_FAMILIES, ids=[f.__name__ for f, _ in BROKEN_FAMILIES])
def test_a_broken_family_is_caught_by_its_rule(family: type[StairsFamily], rule: str) -> None:
    assert broken_rules(family()) == {rule}


def test_play_that_does_not_repeat_is_caught() -> None:
    # Copies and pickles are compared with play recorded before, so they fail along with it.
    found = broken_rules(StairsFamily(Moody))
    assert found == {"same_actions_same_episode", "copies_are_independent", "pickles_round_trip"}


def test_every_rule_has_a_world_that_breaks_it() -> None:
    named = {rule for _, rule in BROKEN_WORLDS} | {rule for _, rule in BROKEN_FAMILIES}
    assert set(RULES) - named == {"same_actions_same_episode"}


def test_a_step_that_is_a_plain_tuple_is_caught() -> None:
    # The rules that play for themselves cannot read its answers either.
    assert "answers_are_typed" in broken_rules(StairsFamily(PlainTuple))


def test_an_endless_world_is_caught() -> None:
    class Endless(Stairs):
        def __init__(self, max_turns: int) -> None:
            super().__init__(10**6)

    assert {"random_policy_runs", "truncates_at_the_limit"} <= broken_rules(StairsFamily(Endless))


def test_raising_names_the_broken_rules() -> None:
    report = check_world(StairsFamily(Mute), episodes=1)
    with pytest.raises(WorldError, match="nonsense_is_answered") as caught:
        report.raise_if_broken()
    assert NONSENSE in str(caught.value)


def test_no_episodes_are_refused() -> None:
    with pytest.raises(WorldError, match="episodes=0"):
        check_world(StairsFamily(), episodes=0)
