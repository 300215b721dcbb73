"""Sums that become means: metrics over tokens, whatever the micro-batches were."""

from __future__ import annotations

import torch

from worldwise.training.ranks import ALONE, Ranks


class Means:
    """Collects values under names; a mean weighs every value added alike.

    Sums stay on the device in float64 until `result`, so collecting does not wait for the device.
    """

    def __init__(self, *counts: str) -> None:
        """`counts` are reported even if nothing is ever counted."""
        self._sums: dict[str, torch.Tensor | float] = {}
        self._counts: dict[str, int] = {}
        self._most: dict[str, torch.Tensor | float] = {}
        self._totals: dict[str, float] = dict.fromkeys(counts, 0.0)

    def add(self, name: str, values: torch.Tensor | float) -> None:
        """Values (a tensor of any shape, or a number) of a metric that is reported as their mean."""
        size = values.numel() if isinstance(values, torch.Tensor) else 1
        total = values.detach().double().sum() if isinstance(values, torch.Tensor) else values
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0) + size

    def most(self, name: str, value: torch.Tensor | float) -> None:
        """A value of a metric that is reported as the largest one seen."""
        before = self._most.get(name)
        value = value.detach() if isinstance(value, torch.Tensor) else value
        self._most[name] = value if before is None or float(value) > float(before) else before

    def count(self, name: str, amount: float) -> None:
        """An amount of a metric that is reported as a sum."""
        self._totals[name] = self._totals.get(name, 0.0) + amount

    def result(self, ranks: Ranks = ALONE, device: torch.device | None = None) -> dict[str, float]:
        """All metrics by name, over what all ranks collected.

        Args:
            ranks: all of them call this.
            device: that they talk through; None = the CPU.
        """
        own = {
            "sums": {name: float(total) for name, total in self._sums.items()},
            "counts": self._counts,
            "most": {name: float(value) for name, value in self._most.items()},
            "totals": self._totals,
        }
        found = ranks.gather(own, device or torch.device("cpu"))
        sums, counts, totals = (_added([part[kind] for part in found]) for kind in ("sums", "counts", "totals"))
        most: dict[str, float] = {}
        for name, value in (entry for part in found for entry in part["most"].items()):
            most[name] = max(value, most.get(name, value))
        return {**{name: total / max(1, counts[name]) for name, total in sums.items()}, **most, **totals}


def _added(parts: list[dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in (entry for part in parts for entry in part.items()):
        found[name] = found.get(name, 0.0) + value
    return found
