"""Sentences about differences, computed from counts: what the numbers allow to say, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from worldwise.reports.results import ALL_SPLITS, Results, label
from worldwise.stages.intervals import Proportion, difference_interval

QUESTIONS: tuple[tuple[str, str, str], ...] = (
    ("base", "policy", "The whole pipeline against the base"),
    ("base", "rl_only", "RL alone against the base"),
    ("base", "rwml", "RWML against the base, before any RL"),
    ("rl_only", "policy", "What RWML adds to RL"),
    ("base", "wm_sft", "WM-SFT against the base, before any RL"),
    ("wm_sft_policy", "policy", "RWML against WM-SFT, both followed by RL"),
)
"""(first model, second model, what their difference answers)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two success rates in one cell of the evaluation.

    Attributes:
        question: what the difference answers.
        split, temperature: the cell.
        first, second: names of the two models.
        before, after: their success.
        low, high: 95 % interval of after - before (Newcombe), in [-1, 1].
    """

    question: str
    split: str
    temperature: str
    first: str
    second: str
    before: Proportion
    after: Proportion
    low: float
    high: float

    @property
    def gap(self) -> float:
        """after - before, in [-1, 1]."""
        return self.after.share - self.before.share

    @property
    def verdict(self) -> str:
        """What the interval allows to say."""
        if self.low > 0:
            return "better, outside chance"
        if self.high < 0:
            return "worse, outside chance"
        return "no difference these games can show"

    def sentence(self) -> str:
        """The comparison in one sentence."""
        return (
            f"{self.question} ({self.split}, T = {self.temperature}): "
            f"{percent(self.before.share)} -> {percent(self.after.share)}, "
            f"{signed(self.gap)} points (95 % interval {signed(self.low)} to {signed(self.high)}; "
            f"{self.before.count} and {self.after.count} episodes): {self.verdict}."
        )


def compare(results: Results) -> list[Comparison]:
    """All questions that the stored results can answer: all splits together first, then split by split."""
    temperatures = sorted({temperature for _, temperature in results.cells()})
    places = [(ALL_SPLITS, temperature) for temperature in temperatures] + results.cells()
    found: list[Comparison] = []
    for first, second, question in QUESTIONS:
        for split, temperature in places:
            before = results.success(first, split, temperature)
            after = results.success(second, split, temperature)
            if before and after and before.count and after.count:
                low, high = difference_interval(before, after)
                found.append(Comparison(question, split, temperature, first, second, before, after, low, high))
    return found


def world_model_sentence(results: Results, first: str, second: str) -> str | None:
    """How the world-model score changed from one model to another, if both were measured."""
    before, after = results.world_model.get(first), results.world_model.get(second)
    if before is None or after is None:
        return None
    low, high = difference_interval(before.overall.exact, after.overall.exact)
    moved = "outside chance" if low > 0 or high < 0 else "within chance"
    return (
        f"World model, {label(first)} -> {label(second)}: similarity {before.overall.similarity:.3f} -> "
        f"{after.overall.similarity:.3f}, exact {percent(before.overall.exact.share)} -> "
        f"{percent(after.overall.exact.share)} ({moved}, {after.overall.exact.count} transitions)."
    )


def percent(share: float) -> str:
    """A share as per cent with one decimal."""
    return f"{100 * share:.1f} %"


def signed(share: float) -> str:
    """A difference of shares in points with sign and one decimal."""
    return f"{100 * share:+.1f}"


def with_interval(value: Proportion) -> str:
    """A share with its interval and count: `31.2 % [27.4, 35.4] (160/512)`."""
    return f"{percent(value.share)} [{100 * value.low:.1f}, {100 * value.high:.1f}] ({value.successes}/{value.count})"
