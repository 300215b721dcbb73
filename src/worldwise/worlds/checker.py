"""What every world has to do, as a program: the contract of `contract.py`, checked by playing.

In the manner of Gymnasium's `env_checker`. Each rule has a name and stands on its own: a world that
breaks one is told which, and the other rules are checked all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from worldwise.worlds.contract import WorldError, WorldFamily
from worldwise.worlds.contract_rules import RULES, Check, mean

_MESSAGES_A_RULE = 3


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name out of `RULES`, and what was seen."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        world: name of the family.
        split: the split whose tasks were played.
        episodes: number of tasks played.
        violations: every broken rule, in the order of `RULES`.
        oracle_success: share of the tasks that the oracle solved, 0..1.
        oracle_turns: mean number of turns of the oracle's episodes.
        random_success: share of the tasks that random play solved, 0..1.
    """

    world: str
    split: str
    episodes: int
    violations: tuple[Violation, ...]
    oracle_success: float
    oracle_turns: float
    random_success: float

    @property
    def ok(self) -> bool:
        """No rule is broken."""
        return not self.violations

    def raise_if_broken(self) -> None:
        """Raise a WorldError that names every broken rule; do nothing if there is none."""
        if self.violations:
            lines = "\n".join(f"- {found.rule}: {found.message}" for found in self.violations)
            raise WorldError(f"the world {self.world!r} breaks its contract:\n{lines}")


def check_world(family: WorldFamily, split: str = "train", episodes: int = 8) -> CheckReport:
    """Play a world and report every rule that it breaks.

    Args:
        family: the world to check.
        split: whose tasks to play.
        episodes: how many tasks to play, at least 1; each is played several times.

    Raises:
        WorldError: fewer than 1 episode is asked for.
    """
    if episodes < 1:
        raise WorldError(f"episodes={episodes}: a check needs at least 1 episode")
    violations: list[Violation] = []
    check = Check(family, split, episodes)
    for rule, broken in RULES.items():
        try:
            violations += [Violation(rule, message) for message in islice(broken(check), _MESSAGES_A_RULE)]
        except Exception as error:
            violations.append(Violation(rule, f"raised {type(error).__name__}: {error}"))
    solved = [played.solved for played in check.oracle]
    return CheckReport(
        world=family.name,
        split=split,
        episodes=len(check.tasks),
        violations=tuple(violations),
        oracle_success=mean(solved),
        oracle_turns=mean([len(played.turns) for played in check.oracle]),
        random_success=mean([played.solved for played in check.random]),
    )
