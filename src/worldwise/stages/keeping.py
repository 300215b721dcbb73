"""Keeping the best weights of a training loop, and deciding that an acting score has collapsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(slots=True)
class LoopState:
    """Where a training loop stands; with the weights and the optimizer it is all that a resumed run needs.

    Everything random derives from seeds and `step`, so no random state is carried.

    Attributes:
        step: updates or iterations done.
        seconds: wall seconds spent on them.
        checks: acting scores so far as (step, success), the one before any update first.
        recent: the last values of a running score.
        best: best score so far, -1 before any.
        best_step: the step after which it was measured.
        stopped: why the loop ended early, empty if it did not.
    """

    step: int = 0
    seconds: float = 0.0
    checks: list[tuple[int, float]] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)
    best: float = -1.0
    best_step: int = 0
    stopped: str = ""

    def take(self, content: Mapping[str, Any]) -> None:
        """Stands where a state stood whose fields went through JSON."""
        self.step, self.seconds = int(content["step"]), float(content["seconds"])
        self.checks = [(int(step), float(score)) for step, score in content["checks"]]
        self.recent = [float(value) for value in content["recent"]]
        self.best, self.best_step = float(content["best"]), int(content["best_step"])
        self.stopped = str(content["stopped"])

    def better(self, score: float) -> bool:
        """Note a score; True if it is the best so far (a tie keeps the earlier one)."""
        if score <= self.best:
            return False
        self.best, self.best_step = score, self.step
        return True

    def running(self, value: float, window: int) -> float:
        """Add a value; the mean of the last `window` values."""
        self.recent = [*self.recent, value][-window:]
        return sum(self.recent) / len(self.recent)

    def collapsed(self, margin: float, patience: int) -> bool:
        """Whether the last `patience` checks all lie more than `margin` below the first one."""
        later = [score for _, score in self.checks[1:]][-patience:]
        return len(later) == patience and all(score < self.checks[0][1] - margin for score in later)


class WeightKeeper:
    """A copy of a model's weights in main memory, taken when told and put back when told."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.kept: dict[str, torch.Tensor] = {}

    def keep(self) -> None:
        """Copy the present weights (instead of those kept before)."""
        self.kept = {name: value.detach().to("cpu", copy=True) for name, value in self._model.state_dict().items()}

    def restore(self) -> None:
        """Put the kept weights back.

        Raises:
            RuntimeError: nothing was kept.
        """
        if not self.kept:
            raise RuntimeError("no weights were kept: call keep() first")
        self._model.load_state_dict(self.kept)
