"""One optimizer step on the gradients at hand: summed over ranks, checked, clipped, at the schedule's rate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.autograd.graph import increment_version

from worldwise.training.config import LearnerConfig
from worldwise.training.errors import LearnerError
from worldwise.training.metrics import Means
from worldwise.training.ranks import Ranks
from worldwise.training.schedule import learning_rate_factor


class Optimizer:
    """AdamW with its schedule.

    Attributes:
        steps: steps so far (the position in the schedule).
        total_steps: planned ones.
    """

    def __init__(
        self, parameters: list[torch.nn.Parameter], config: LearnerConfig, total_steps: int, ranks: Ranks
    ) -> None:
        self.steps, self.total_steps = 0, total_steps
        self._config, self._ranks = config, ranks
        self._inner = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
                {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.epsilon,
            fused=True,
        )

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        config = self._config
        return config.learning_rate * learning_rate_factor(
            self.steps,
            self.total_steps,
            schedule=config.schedule,
            warmup_steps=config.warmup_steps,
            final_share=config.final_share,
        )

    def step(self, loss: float, means: Means, *, idle: bool = False) -> None:
        """A step on this process's gradients and those of the other ranks.

        Args:
            loss: of all ranks together, for the message.
            means: hears `grad_norm`, `grad_norm_max`, `learning_rate` and `optimizer_steps`.
            idle: there was nothing to train on: only the schedule moves.

        Raises:
            LearnerError: loss or gradient is not finite.
        """
        rate = self.learning_rate
        means.most("learning_rate", rate)
        self.steps += 1
        if idle:
            return
        parameters = [p for group in self._inner.param_groups for p in group["params"]]
        self._ranks.add_up_gradients(parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._config.gradient_clip or math.inf))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._inner.zero_grad()
            raise LearnerError(
                f"optimizer step {self.steps - 1}: loss {loss:g} and gradient norm {norm:g} must be finite; "
                "lower learning_rate, or check the advantages that came in (the model is unchanged)"
            )
        for group in self._inner.param_groups:
            group["lr"] = rate
        self._inner.step()
        # The fused optimizer does not count as a write by itself, and engines know by it that they are out of date.
        increment_version(parameters)
        self._inner.zero_grad()
        means.add("grad_norm", norm)
        means.most("grad_norm_max", norm)
        means.count("optimizer_steps", float(self._ranks.first))

    def state_dict(self) -> dict[str, Any]:
        """`optimizer`, `steps` and `total_steps`."""
        return {"optimizer": self._inner.state_dict(), "steps": self.steps, "total_steps": self.total_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave.

        Raises:
            LearnerError: it was made for another number of planned steps (the schedule would jump).
        """
        if state["total_steps"] != self.total_steps:
            raise LearnerError(
                f"the stored state plans {state['total_steps']} optimizer steps, this learner {self.total_steps}: "
                "resume with the same settings"
            )
        self._inner.load_state_dict(state["optimizer"])
        self.steps = int(state["steps"])
