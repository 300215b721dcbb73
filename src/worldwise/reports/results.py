"""Everything a report is made of, as stored results: nothing here is computed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from worldwise.stages.acting_scores import ActingReport, ActingScore
from worldwise.stages.difficulty import DifficultyReport
from worldwise.stages.intervals import Proportion, pooled
from worldwise.stages.world_model_scores import WorldModelReport

LABELS: Mapping[str, str] = {
    "format_tuning": "Format tuning",
    "auxiliary": "Auxiliary model",
    "random": "Random play",
    "oracle": "Oracle play",
    "base": "Base",
    "wm_sft": "WM-SFT",
    "rwml": "RWML",
    "rl_only": "RL alone",
    "wm_sft_policy": "WM-SFT, then RL",
    "policy": "RWML, then RL",
}
"""Name of a model in the stored results -> how reports call it, in the order of their tables."""

SCRIPTED = ("random", "oracle")
"""Names of the yardsticks, which use no model."""

ALL_SPLITS = "all splits"
"""Stands for the splits of an evaluation taken together."""

Curve = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Results:
    """What one run of the pipelines left behind.

    Attributes:
        acting: model name -> scores of its evaluation episodes.
        world_model: model name -> scores of its predictions.
        curves: stage name -> rows with `step` and metrics.
        difficulty: what difficulty subsampling did, if it ran.
        transition_counts: cleaning rule -> transitions that it removed, and what was left.
        stages: stage name -> summary numbers (updates, seconds, shares).
        facts: what a reader has to know beside the numbers (world, model, decoding, machine), as text.
    """

    acting: Mapping[str, ActingReport]
    world_model: Mapping[str, WorldModelReport] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    difficulty: DifficultyReport | None = None
    transition_counts: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    def cell(self, model: str, split: str, temperature: str) -> ActingScore | None:
        """The acting score of one model in one cell of the evaluation, if it was measured."""
        report = self.acting.get(model)
        return report.scores.get(split, {}).get(temperature) if report else None

    def shown(self, model: str, split: str, temperature: str) -> ActingScore | None:
        """As `cell`; scripted play has no temperature, so its one score stands at every temperature of the split."""
        if model not in SCRIPTED or model not in self.acting:
            return self.cell(model, split, temperature)
        return next(iter(self.acting[model].scores.get(split, {}).values()), None)

    def success(self, model: str, split: str, temperature: str) -> Proportion | None:
        """A model's success in one cell, or, with `ALL_SPLITS`, in all splits that were played together."""
        if split != ALL_SPLITS:
            score = self.cell(model, split, temperature)
            return score.success if score else None
        splits = sorted({name for name, found in self.cells() if found == temperature})
        scores = [self.cell(model, name, temperature) for name in splits]
        if not scores or any(score is None for score in scores):
            return None
        known = [score.success for score in scores if score is not None]
        return pooled(known)

    def cells(self) -> list[tuple[str, str]]:
        """Every (split, temperature) that any model but the scripted ones was evaluated at, sorted."""
        return sorted(
            {
                (split, temperature)
                for name, report in self.acting.items()
                if name not in SCRIPTED
                for split, row in report.scores.items()
                for temperature in row
            }
        )


def ordered(names: Mapping[str, object]) -> list[str]:
    """Model names in the order of `LABELS`, unknown ones last in alphabetical order."""
    known = list(LABELS)
    return sorted(names, key=lambda name: (known.index(name) if name in LABELS else len(known), name))


def label(name: str) -> str:
    """How reports call a model."""
    return LABELS.get(name, name)
